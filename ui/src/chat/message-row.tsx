/** One message. It is drawn again only if it changed itself. */

import type { Message, Part } from "@outlast/client";
import { memo } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { AssistantMessage } from "./assistant-message";
import { ToolCard } from "./tool-card";
import { UserMessage } from "./user-message";

export interface MessageRowProps {
  readonly message: Message;
  /** What it says now. */
  readonly parts: readonly Part[];
  readonly isWriting: boolean;
  /** Whether its generation waits for its turn. */
  readonly isQueued: boolean;
  /** Whether it belongs to the last generation, whose end is told below the messages. */
  readonly isCurrent: boolean;
  readonly onUnqueue: (generationId: string) => Promise<unknown>;
}

export const MessageRow = memo(function MessageRow(props: MessageRowProps): ReactNode {
  const { message } = props;
  return (
    <div className="row" data-message={message.id} data-role={message.role}>
      <Content {...props} />
    </div>
  );
});

function Content(props: MessageRowProps): ReactNode {
  const { message, parts, isWriting, isQueued, isCurrent, onUnqueue } = props;
  switch (message.role) {
    case "user":
      return (
        <UserMessage
          parts={parts}
          note={isQueued ? "Queued" : null}
          onRemove={
            isQueued && message.generationId !== null ? () => onUnqueue(message.generationId ?? "") : null
          }
        />
      );
    case "assistant":
      return <AssistantMessage message={message} parts={parts} isWriting={isWriting} isCurrent={isCurrent} />;
    case "tool":
      return <ToolCard parts={parts} />;
    case "system":
      return <p className="system-note">{revealBidi(message.content)}</p>;
  }
}
