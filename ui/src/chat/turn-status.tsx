/** The state of the current generation, shown below the last message, with what can be done about it. */

import type { GenerationState, ScheduledRetry } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import type { ReactNode } from "react";
import { sentence } from "../shell/sentence";
import { Icon } from "../shell/icon";
import { Link } from "../shell/link";
import { KeepFocus } from "../shell/keep-focus";
import { Approvals, askedBy, questionKey } from "../tools/approvals";
import { NoToolsHere } from "../tools/no-tools";
import { quietly } from "./quietly";
import { RetryNote } from "./retry-note";
import { TurnCard } from "./turn-card";
import { useIsWorkers } from "./use-is-workers";

export function TurnStatus({ chat }: { readonly chat: UseConversation }): ReactNode {
  const { generation, view } = chat;
  const waits = askedBy(view?.activeRun).map(({ approval }) => questionKey(approval));
  return (
    <KeepFocus about={[generation?.id, generation?.status, ...waits].join(" ")} to=".scroller">
      <Status chat={chat} />
    </KeepFocus>
  );
}

function Status({ chat }: { readonly chat: UseConversation }): ReactNode {
  const { generation, pending, view } = chat;
  // A message that is being sent will be answered next, so how the last generation ended no longer matters.
  if (pending.some(({ status }) => status !== "failed") && view?.activeRun == null) return <Working />;
  if (generation === null) return null;
  switch (generation.status) {
    case "queued":
      return <Working words="Queued…" />;
    case "running":
      return <Running chat={chat} retry={generation.retry} />;
    case "interrupted":
      return <Interrupted key={generation.id} chat={chat} generation={generation} />;
    case "awaiting_approval":
      return <Approvals chat={chat} />;
    case "paused":
      return (
        <>
          <p className="turn-note is-line">
            <Icon name="pause" />
            <span>Paused while it waits for you. Its files are saved, and your decision wakes it up.</span>
          </p>
          <Approvals chat={chat} />
        </>
      );
    case "completed":
      return generation.endReason === "length" ? (
        <p className="turn-note">The answer reached the model’s length limit.</p>
      ) : (
        <NoToolsHere view={view} />
      );
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
    default:
      generation.status satisfies never; // of a newer server
      return null;
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
  // Before the first word, and between a tool and the next text, nothing else shows that work continues. A running
  // tool says so itself.
  const isSpeaking = Object.values(chat.view?.overlayParts ?? {}).some((parts) => parts.length > 0);
  return isSpeaking || chat.view?.activeRun?.runningTools !== undefined ? null : <Working />;
}

function Interrupted({ chat, generation }: Props): ReactNode {
  const isWorkers = useIsWorkers(generation.id);
  const text = isWorkers
    ? "The worker producing this answer stopped responding. It will continue when the worker reconnects. You can also dismiss it and keep the text so far."
    : "The answer stopped before it was complete. Resume it, or dismiss it and keep the text so far.";
  return (
    <TurnCard tone="wait" title="The answer was interrupted" text={isWorkers === null ? "" : text}>
      {isWorkers === false && (
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

/** Three dots in place of the answer. */
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
  superseded: "Stopped to answer a newer message.",
  abandoned: "Stopped because nobody was watching.",
  dismissed: "Dismissed after an interruption.",
  parent_ended: "Stopped with the conversation that delegated to it.",
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
  if (chat.view?.conversation.parent != null) return null; // what becomes of it is up to its parent
  const hasText = generation.contentParts.some((part) => part.type === "text" && part.text !== "");
  // An answer without text has no message, and so no link of its own to the inspector.
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
