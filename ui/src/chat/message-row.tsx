/** One message. It renders again only when it has changed. */

import type { Message, OutputPiece, Part } from "@outlast/client";
import { memo } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { callIn } from "../tools/tool-call";
import type { Going } from "../tools/tool-call";
import { ToolCard } from "../tools/tool-card";
import { AssistantMessage } from "./assistant-message";
import { UserMessage } from "./user-message";

export interface MessageRowProps {
  readonly message: Message;
  /** As they are now, even while the message is being written. */
  readonly parts: readonly Part[];
  readonly isWriting: boolean;
  readonly isQueued: boolean;
  /** Whether it belongs to the last generation, whose outcome is shown below the messages. */
  readonly isCurrent: boolean;
  /** What is going on, for a tool call that has no result. */
  readonly going: Going;
  /** What that tool has written so far. */
  readonly output: readonly OutputPiece[] | undefined;
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
  const { message, parts, isWriting, isQueued, isCurrent, going, output, onUnqueue } = props;
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
      return <ToolRow message={message} going={going} output={output} />;
    case "system":
      return <p className="system-note">{revealBidi(message.content)}</p>;
  }
}

function ToolRow({
  message,
  going,
  output,
}: Pick<MessageRowProps, "message" | "going" | "output">): ReactNode {
  const call = callIn(message, going);
  return call && <ToolCard call={call} output={output} />;
}
