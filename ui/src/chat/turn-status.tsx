/** What is going on after the last message, and what can be done about it. */

import type { GenerationState, ScheduledRetry } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import type { ReactNode } from "react";
import { sentence } from "../shell/sentence";
import { Link } from "../shell/link";
import { KeepFocus } from "../shell/keep-focus";
import { Approvals, questionKey } from "./approvals";
import { quietly } from "./quietly";
import { RetryNote } from "./retry-note";
import { TurnCard } from "./turn-card";
import { useMaker } from "./use-maker";

export function TurnStatus({ chat }: { readonly chat: UseConversation }): ReactNode {
  const { generation, view } = chat;
  const waits = view?.activeRun?.pendingApprovals?.map(questionKey) ?? [];
  return (
    <KeepFocus about={[generation?.id, generation?.status, ...waits].join(" ")} to=".scroller">
      <Status chat={chat} />
    </KeepFocus>
  );
}

function Status({ chat }: { readonly chat: UseConversation }): ReactNode {
  const { generation, pending, view } = chat;
  // What is being sent will be answered next; how the last one ended is history.
  if (pending.some(({ status }) => status !== "failed") && view?.activeRun == null) return <Working />;
  if (generation === null) return null;
  switch (generation.status) {
    case "queued":
      return <Working words="Waiting for its turn…" />;
    case "running":
      return <Running chat={chat} retry={generation.retry} />;
    case "interrupted":
      return <Interrupted key={generation.id} chat={chat} generation={generation} />;
    case "awaiting_approval":
      return <Approvals chat={chat} />;
    case "paused":
      return (
        <>
          <TurnCard tone="wait" title="Paused" text="It waits for you.">
            <button type="button" className="button button-primary" onClick={() => quietly(chat.resume())}>
              Resume
            </button>
          </TurnCard>
          <Approvals chat={chat} />
        </>
      );
    case "completed":
      return generation.endReason === "length" ? (
        <p className="turn-note">The answer reached the model’s limit of length.</p>
      ) : null;
    case "cancelled":
      return <Stopped chat={chat} generation={generation} />;
    case "error":
      return (
        <TurnCard
          tone="failed"
          title="The answer failed"
          text={generation.errorMessage === null ? "" : sentence(generation.errorMessage)}
        >
          <Again chat={chat} generation={generation} />
        </TurnCard>
      );
  }
}

interface Props {
  readonly chat: UseConversation;
  readonly generation: GenerationState;
}

interface RunningProps {
  readonly chat: UseConversation;
  readonly retry: ScheduledRetry | null;
}

function Running({ chat, retry }: RunningProps): ReactNode {
  if (retry !== null) return <RetryNote key={retry.ts} retry={retry} />;
  // Before the first word, and between a tool and the next one, nothing else shows that work goes on.
  const isSpeaking = Object.values(chat.view?.overlayParts ?? {}).some((parts) => parts.length > 0);
  return isSpeaking ? null : <Working />;
}

function Interrupted({ chat, generation }: Props): ReactNode {
  const maker = useMaker(generation.id);
  const text =
    maker === "worker"
      ? "The program that makes it was not heard. It goes on when that program is back, or dismiss it and keep what was said."
      : "The server was stopped in the middle of it. Resume to have it answered anew, or dismiss it and keep what was said.";
  return (
    <TurnCard tone="wait" title="The answer was interrupted" text={maker === null ? "" : text}>
      {maker === "server" && (
        <button type="button" className="button button-primary" onClick={() => quietly(chat.resume())}>
          Resume
        </button>
      )}
      <button type="button" className="button" onClick={() => quietly(chat.dismiss())}>
        Dismiss
      </button>
    </TurnCard>
  );
}

/** Three dots, where the answer will be. */
function Working({ words }: { readonly words?: string }): ReactNode {
  return (
    <p className="working">
      <span className="dots" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      <span className={words === undefined ? "visually-hidden" : undefined}>
        {words ?? "Waiting for the answer"}
      </span>
    </p>
  );
}

const REASONS: Readonly<Record<string, string>> = {
  user: "Stopped.",
  superseded: "Stopped in favour of another message.",
  abandoned: "Stopped, because nobody was watching for a long time.",
  dismissed: "Dismissed after an interruption.",
};

function Stopped({ chat, generation }: Props): ReactNode {
  return (
    <div className="turn-note">
      <span>{REASONS[generation.endReason ?? "user"] ?? "Stopped."}</span>
      <Again chat={chat} generation={generation} />
    </div>
  );
}

function Again({ chat, generation }: Props): ReactNode {
  const hasText = generation.contentParts.some((part) => part.type === "text" && part.text !== "");
  // An answer that said nothing has no message with a link of its own.
  const hasMessage = generation.contentParts.length > 0;
  return (
    <>
      <button type="button" className="button" onClick={() => quietly(chat.retry("retry"))}>
        Retry
      </button>
      {hasText && (
        <button type="button" className="button" onClick={() => quietly(chat.retry("continue"))}>
          Continue
        </button>
      )}
      {!hasMessage && (
        <Link to={{ type: "inspect", generationId: generation.id }} className="quiet-button">
          Inspect
        </Link>
      )}
    </>
  );
}
