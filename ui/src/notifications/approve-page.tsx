/** The page of a link in a notification: it shows a question, and a click decides. Opening it decides nothing. */

import type { Question } from "@outlast/client/notifications";
import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { Revealed } from "../markdown/revealed";
import { Link } from "../shell/link";
import { MenuButton } from "../shell/menu-button";
import { pretty } from "../shell/pretty";
import { titleOf } from "../shell/title";
import { notifications } from "./use-notifications";

type State =
  | { readonly type: "loading" | "missing" }
  | { readonly type: "asked" | "decided"; readonly question: Question }
  | { readonly type: "failed"; readonly question: Question; readonly why: string };

export interface ApprovePageProps {
  readonly id: string;
  readonly onMenu: () => void;
}

export function ApprovePage({ id, onMenu }: ApprovePageProps): ReactNode {
  const [state, setState] = useState<State>({ type: "loading" });
  useEffect(() => {
    document.title = "Decide · Outlast";
    notifications.question(id).then(
      (question) => setState({ type: "asked", question }),
      () => setState({ type: "missing" }),
    );
  }, [id]);
  const decide = (question: Question, decision: "approve" | "deny"): void => {
    notifications.decide(id, decision).then(
      () => setState({ type: "decided", question }),
      (error: unknown) =>
        setState({ type: "failed", question, why: error instanceof Error ? error.message : "unknown error" }),
    );
  };
  return (
    <section className="approve-page" aria-label="Decision">
      <header className="page-head">
        <MenuButton onClick={onMenu} />
        <h1>Decide about a tool call</h1>
      </header>
      <Body state={state} onDecide={decide} />
    </section>
  );
}

interface BodyProps {
  readonly state: State;
  readonly onDecide: (question: Question, decision: "approve" | "deny") => void;
}

function Body({ state, onDecide }: BodyProps): ReactNode {
  switch (state.type) {
    case "loading":
      return <p>Loading…</p>;
    case "missing":
      return <p>Not found. The link may belong to another account.</p>;
    case "decided":
      return (
        <>
          <Place question={state.question} />
          <p role="status">Decided. The answer continues.</p>
        </>
      );
    case "failed":
      return (
        <>
          <Place question={state.question} />
          <p role="alert">Could not decide: {state.why}.</p>
        </>
      );
    case "asked":
      return (
        <>
          <Place question={state.question} />
          <Asked question={state.question} onDecide={onDecide} />
        </>
      );
  }
}

function Place({ question }: { readonly question: Question }): ReactNode {
  return (
    <p>
      In <Link to={{ type: "conversation", id: question.conversationId }}>{titleOf(question)}</Link>
    </p>
  );
}

interface AskedProps {
  readonly question: Question;
  readonly onDecide: (question: Question, decision: "approve" | "deny") => void;
}

function Asked({ question, onDecide }: AskedProps): ReactNode {
  if (!question.open) return <p>This question no longer needs a decision.</p>;
  return (
    <>
      <p>
        Run <strong>{question.toolName}</strong>?
      </p>
      <pre tabIndex={0} role="region" aria-label="Arguments">
        <Revealed text={pretty(question.toolInput)} />
      </pre>
      <div className="dialog-buttons">
        <button type="button" className="button" onClick={() => onDecide(question, "deny")}>
          Deny
        </button>
        <button type="button" className="button button-primary" onClick={() => onDecide(question, "approve")}>
          Approve
        </button>
      </div>
    </>
  );
}
