/** An assistant's message, with copy and inspect. */

import type { Message, Part } from "@outlast/client";
import type { ReactNode } from "react";
import { ChangedFiles } from "../files/changed-files";
import { takeSummary } from "../files/files-summary";
import { Markdown } from "../markdown/markdown";
import { CopyButton } from "../shell/copy-button";
import { Icon } from "../shell/icon";
import { Link } from "../shell/link";
import { Thinking } from "./thinking";

export interface AssistantMessageProps {
  readonly message: Message;
  readonly parts: readonly Part[];
  readonly isWriting: boolean;
  readonly isCurrent: boolean;
}

export function AssistantMessage({ message, parts, isWriting, isCurrent }: AssistantMessageProps): ReactNode {
  return (
    <article className="assistant-message" aria-label="Assistant" aria-busy={isWriting}>
      {parts.map((part, place) => (
        <AssistantPart
          key={place}
          part={part}
          id={`${message.id}:${place}`}
          since={place === 0 ? message.createdAt : null}
          generationId={message.generationId}
          isWriting={isWriting && place === parts.length - 1}
        />
      ))}
      <footer className={isCurrent ? "message-foot is-current" : "message-foot"}>
        {isWriting ? (
          <span className="pulse" title="Writing…" />
        ) : (
          <CopyButton text={textOfParts(parts)} label="Copy answer" />
        )}
        {message.generationId !== null && (
          <Link
            to={{ type: "inspect", generationId: message.generationId }}
            className="quiet-button"
            label="Inspect this answer"
          >
            <Icon name="inspect" />
            <span>Inspect</span>
          </Link>
        )}
        {!isWriting && !isCurrent && <Ending message={message} />}
      </footer>
    </article>
  );
}

function textOfParts(parts: readonly Part[]): string {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

interface AssistantPartProps {
  readonly part: Part;
  readonly id: string;
  readonly since: string | null;
  readonly generationId: string | null;
  readonly isWriting: boolean;
}

function AssistantPart({ part, id, since, generationId, isWriting }: AssistantPartProps): ReactNode {
  switch (part.type) {
    case "text":
      return <Answer text={part.text} generationId={generationId} isWriting={isWriting} />;
    case "thinking":
      return <Thinking text={part.text} id={id} since={since} isThinking={isWriting} />;
    case "tool_use":
    case "tool_result":
    case "image":
      return null;
  }
}

interface AnswerProps {
  readonly text: string;
  readonly generationId: string | null;
  readonly isWriting: boolean;
}

function Answer({ text, generationId, isWriting }: AnswerProps): ReactNode {
  const answer = takeSummary(text, isWriting);
  return (
    <>
      <Markdown text={answer.text} isStreaming={isWriting} />
      {answer.files.length > 0 && <ChangedFiles files={answer.files} generationId={generationId} />}
    </>
  );
}

/** How an earlier answer ended, if it is incomplete. */
function Ending({ message }: { readonly message: Message }): ReactNode {
  if (message.status === "cancelled") return <span className="ending">Stopped</span>;
  if (message.status === "error") return <span className="ending">Failed: {message.errorMessage}</span>;
  return null;
}
