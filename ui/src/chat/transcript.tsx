/** The messages of a conversation. Only those near the visible part are in the page. */

import type { UseConversation } from "@outlast/client/react";
import { useRef } from "react";
import type { ReactNode } from "react";
import { Icon } from "../shell/icon";
import { MessageRow } from "./message-row";
import { PendingRow } from "./pending-row";
import { TurnStatus } from "./turn-status";
import { useFollow } from "./use-follow";
import type { Sending } from "./use-sending";
import { useWindow } from "./use-window";

/** Older messages fetched at a time. */
const PAGE = 200;

export interface TranscriptProps {
  readonly chat: UseConversation;
  readonly sending: Sending;
}

export function Transcript({ chat, sending }: TranscriptProps): ReactNode {
  const scroller = useRef<HTMLDivElement>(null);
  const { view, pending, generation } = chat;
  const messages = view?.messages ?? [];
  const newest = pending.at(-1)?.requestId;
  const { isFollowing, follow, content } = useFollow(scroller, newest);
  const rows = useWindow({
    messages,
    scroller,
    isFollowing,
    loadOlder: view?.hasMore === true ? () => chat.loadOlder(PAGE) : null,
  });
  const jump = (): void => {
    rows.toEnd();
    follow();
  };
  const running = view?.activeRun?.status === "running" ? view.activeRun.generationId : null;
  return (
    <div className="transcript">
      <div className="scroller" ref={scroller} tabIndex={0} role="region" aria-label="Messages">
        <div className="column" ref={content}>
          <div ref={rows.top} className="edge" aria-hidden="true">
            {chat.isLoadingOlder && "Loading older messages…"}
          </div>
          {view !== null &&
            messages
              .slice(rows.start, rows.end)
              .map((message) => (
                <MessageRow
                  key={message.id}
                  message={message}
                  parts={view.overlayParts[message.id] ?? message.parts}
                  isWriting={message.status === "streaming" && message.generationId === running}
                  isQueued={view.queue.some((run) => run.generationId === message.generationId)}
                  isCurrent={message.generationId === generation?.id}
                  onUnqueue={chat.cancel}
                />
              ))}
          {rows.end < messages.length ? (
            <div ref={rows.bottom} className="edge" aria-hidden="true" />
          ) : (
            <Tail chat={chat} sending={sending} />
          )}
        </div>
      </div>
      {(!isFollowing || rows.end < messages.length) && (
        <button type="button" className="jump" onClick={jump}>
          <Icon name="down" />
          <span>Jump to latest</span>
        </button>
      )}
    </div>
  );
}

/** What follows the last message: messages being sent, and the state of the generation. */
function Tail({ chat, sending }: TranscriptProps): ReactNode {
  const failed = sending.failed.map(
    ({ requestId, text }) => ({ requestId, content: text, status: "failed", error: null }) as const,
  );
  return (
    <>
      {[...failed, ...chat.pending].map((message) => (
        <PendingRow
          key={message.requestId}
          message={message}
          onResend={sending.resend}
          onDiscard={sending.discard}
        />
      ))}
      <TurnStatus chat={chat} />
    </>
  );
}
