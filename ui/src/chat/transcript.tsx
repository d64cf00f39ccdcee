/** The messages of a conversation. Only those near the visible part are in the page. */

import type { Message, Part } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import { useMemo, useRef } from "react";
import type { ReactNode } from "react";
import { Icon } from "../shell/icon";
import { SandboxNote } from "../tools/sandbox-state";
import { NOTHING_GOING } from "../tools/tool-call";
import type { Going } from "../tools/tool-call";
import { ToolGroup } from "../tools/tool-group";
import { groupTools } from "../tools/tool-groups";
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
  const { view, pending } = chat;
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
  return (
    <div className="transcript">
      <div className="scroller" ref={scroller} tabIndex={0} role="region" aria-label="Messages">
        <div className="column" ref={content}>
          <div ref={rows.top} className="edge" aria-hidden="true">
            {chat.isLoadingOlder && "Loading older messages…"}
          </div>
          <Rows chat={chat} messages={messages.slice(rows.start, rows.end)} />
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

interface RowsProps {
  readonly chat: UseConversation;
  readonly messages: readonly Message[];
}

function Rows({ chat, messages }: RowsProps): ReactNode {
  const going = useGoing(chat);
  const active = chat.view?.activeRun?.generationId ?? null;
  return groupTools(messages, active).map((shown) =>
    shown.type === "message" ? (
      <Row key={shown.message.id} chat={chat} going={going} message={shown.message} />
    ) : (
      <ToolGroup key={shown.messages[0]?.id} messages={shown.messages}>
        {() =>
          shown.messages.map((message) => (
            <Row key={message.id} chat={chat} going={going} message={message} />
          ))
        }
      </ToolGroup>
    ),
  );
}

/** The same object until something that concerns tool calls has changed. */
function useGoing({ view }: UseConversation): Going {
  const { activeRun = null, lastEnd = null } = view ?? {};
  return useMemo(() => ({ activeRun, lastEnd }), [activeRun, lastEnd]);
}

interface RowProps {
  readonly chat: UseConversation;
  readonly going: Going;
  readonly message: Message;
}

/** Passes on only what concerns this message, so that it renders again only when that has changed. */
function Row({ chat, going, message }: RowProps): ReactNode {
  const { view, generation, toolOutputs } = chat;
  if (view === null) return null;
  const { id, generationId, parts } = message;
  const run = view.activeRun?.generationId === generationId ? view.activeRun : null;
  const call = message.role === "tool" ? openCall(parts) : undefined;
  return (
    <MessageRow
      message={message}
      parts={view.overlayParts[id] ?? parts}
      isWriting={message.status === "streaming" && run?.status === "running"}
      isQueued={view.queue.some((queued) => queued.generationId === generationId)}
      isCurrent={generationId === generation?.id}
      going={call === undefined ? NOTHING_GOING : going}
      output={call === undefined ? undefined : toolOutputs[call]}
      onUnqueue={chat.cancel}
    />
  );
}

/** The id of a call that has no result. */
function openCall(parts: readonly Part[]): string | undefined {
  if (parts.some(({ type }) => type === "tool_result")) return undefined;
  return parts.find((part) => part.type === "tool_use")?.id;
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
      {chat.view?.activeRun != null && <SandboxNote state={chat.view.conversation.sandboxState} />}
      <TurnStatus chat={chat} />
    </>
  );
}
