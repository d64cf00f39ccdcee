/** A conversation, or the start of a new one. */

import { useConversation } from "@outlast/client/react";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useEffectEvent, useState } from "react";
import type { ReactNode } from "react";
import { OpenFiles } from "../files/files-context";
import type { FilesAsked } from "../files/files-context";
import { FilesPanel } from "../files/files-panel";
import { go } from "../route";
import { useNotifications, useReadWith } from "../notifications/use-notifications";
import { Icon } from "../shell/icon";
import { MenuButton } from "../shell/menu-button";
import { titleOf } from "../shell/title";
import { SandboxBadge } from "../tools/sandbox-state";
import { useUser } from "../user";
import { Composer } from "./composer";
import { ConnectionNote } from "./connection-note";
import { EmptyState } from "./empty-state";
import { forgetConversation } from "./forget";
import { LoadingState } from "./loading-state";
import { MissingState } from "./missing-state";
import { quietly } from "./quietly";
import { keyOf } from "./store-key";
import { SubAgentBar } from "./sub-agent-bar";
import { Transcript } from "./transcript";
import { useAnnouncements } from "./use-announcements";
import { useModel } from "./use-model";
import { useSending } from "./use-sending";
import type { Sending } from "./use-sending";

export interface ChatPageProps {
  /** Null for a new conversation. */
  readonly id: string | null;
  readonly onMenu: () => void;
}

type Phase = "missing" | "empty" | "loading" | "open";

export function ChatPage({ id, onMenu }: ChatPageProps): ReactNode {
  const chat = useConversation(id);
  const model = useModel();
  const sending = useSending(chat, model.chosen);
  const phase = phaseOf(chat, sending);
  const title = chat.view === null ? "" : titleOf(chat.view.conversation);
  useAddress(id, chat.id);
  useDocumentTitle(title, chat.isGenerating);
  useReadWith(id);
  useForgotten(id, phase === "missing");
  useAnnouncements(chat);
  useEscape(() => {
    if (chat.isGenerating) quietly(chat.cancel());
  });
  const [asked, ask] = useState<FilesAsked | null>(null);
  const key = keyOf(chat.conversation);
  const parentId = chat.view?.conversation.parent?.conversationId;
  return (
    <section className={id === null ? "chat is-new" : "chat"} aria-label="Conversation">
      <header className="page-head">
        <MenuButton onClick={onMenu} />
        <h1 className={phase === "empty" ? "only-narrow" : undefined}>
          <bdi>{title || "Outlast"}</bdi>
        </h1>
        <SandboxBadge state={chat.view?.conversation.sandboxState} />
        {chat.view?.conversation.sandboxState != null && (
          <button
            type="button"
            className="quiet-button files-button"
            aria-label="Files"
            onClick={() => ask({ since: null, path: null })}
          >
            <Icon name="folder" />
            <span>Files</span>
          </button>
        )}
        {phase !== "missing" && (
          <ConnectionNote key={`n${key}`} connection={chat.connection} onRetry={chat.reconnect} />
        )}
      </header>
      <OpenFiles value={ask}>
        <Body phase={phase} chat={chat} sending={sending} />
      </OpenFiles>
      {asked !== null && chat.id !== null && (
        <FilesPanel
          conversationId={chat.id}
          asked={asked}
          newest={chat.view?.conversation.currentGenerationId ?? null}
          version={filesVersion(chat)}
          onClose={() => ask(null)}
        />
      )}
      {phase !== "missing" &&
        (parentId === undefined ? (
          <Composer key={`c${key}`} chat={chat} model={model} onSend={sending.send} />
        ) : (
          <SubAgentBar chat={chat} parentId={parentId} />
        ))}
    </section>
  );
}

interface BodyProps {
  readonly phase: Phase;
  readonly chat: UseConversation;
  readonly sending: Sending;
}

function Body({ phase, chat, sending }: BodyProps): ReactNode {
  switch (phase) {
    case "missing":
      return <MissingState />;
    case "empty":
      return <EmptyState onSend={(text, model) => sending.send(text, "queue", model)} />;
    case "loading":
      return <LoadingState />;
    case "open":
      return <Transcript key={keyOf(chat.conversation)} chat={chat} sending={sending} />;
  }
}

function phaseOf({ id, view, pending, connection }: UseConversation, { failed }: Sending): Phase {
  if (connection.type === "ended" && connection.error?.status === 404) return "missing";
  if (pending.length > 0) return "open";
  if (id === null) return failed.length === 0 ? "empty" : "open";
  return view === null ? "loading" : "open";
}

/** Files change with a round, and when an answer ends. */
function filesVersion({ view }: UseConversation): string {
  return `${view?.conversation.generationStatus} ${view?.activeRun?.generationId} ${view?.activeRun?.round}`;
}

/** The first message of a new conversation creates it. From then on the address names it. */
function useAddress(shown: string | null, created: string | null): void {
  useEffect(() => {
    if (shown === null && created !== null) go({ type: "conversation", id: created }, "replace");
  }, [shown, created]);
}

function useDocumentTitle(title: string, isGenerating: boolean): void {
  const { unread } = useNotifications();
  useEffect(() => {
    const name = title === "" ? "Outlast" : `${title} · Outlast`;
    const news = unread === 0 ? "" : `(${unread}) `;
    document.title = news + (isGenerating ? `● ${name}` : name);
  }, [title, isGenerating, unread]);
}

function useForgotten(id: string | null, isMissing: boolean): void {
  const user = useUser();
  useEffect(() => {
    if (isMissing && id !== null) forgetConversation(user, id);
  }, [user, isMissing, id]);
}

/** Escape stops the answer, unless something open handles it, such as a dialog. */
function useEscape(action: () => void): void {
  const press = useEffectEvent((event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
    if (document.querySelector("dialog[open], .drawer-open") === null) action();
  });
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => press(event);
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}
