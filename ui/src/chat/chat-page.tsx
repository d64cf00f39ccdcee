/** A conversation, or the start of a new one. */

import { useConversation } from "@outlast/client/react";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useEffectEvent } from "react";
import type { ReactNode } from "react";
import { go } from "../route";
import { MenuButton } from "../shell/menu-button";
import { titleOf } from "../shell/title";
import { useUser } from "../user";
import { Composer } from "./composer";
import { ConnectionNote } from "./connection-note";
import { EmptyState } from "./empty-state";
import { forgetConversation } from "./forget";
import { LoadingState } from "./loading-state";
import { MissingState } from "./missing-state";
import { quietly } from "./quietly";
import { keyOf } from "./store-key";
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
  useForgotten(id, phase === "missing");
  useAnnouncements(chat);
  useEscape(() => {
    if (chat.isGenerating) quietly(chat.cancel());
  });
  const key = keyOf(chat.conversation);
  return (
    <section className={id === null ? "chat is-new" : "chat"} aria-label="Conversation">
      <header className="page-head">
        <MenuButton onClick={onMenu} />
        <h1 className={phase === "empty" ? "only-narrow" : undefined}>
          <bdi>{title || "Outlast"}</bdi>
        </h1>
        {phase !== "missing" && (
          <ConnectionNote key={`n${key}`} connection={chat.connection} onRetry={chat.reconnect} />
        )}
      </header>
      <Body phase={phase} chat={chat} sending={sending} />
      {phase !== "missing" && <Composer key={`c${key}`} chat={chat} model={model} onSend={sending.send} />}
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
      return <EmptyState onSend={(text) => sending.send(text, "queue")} />;
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

/** The first message of a new conversation creates it. From then on the address names it. */
function useAddress(shown: string | null, created: string | null): void {
  useEffect(() => {
    if (shown === null && created !== null) go({ type: "conversation", id: created }, "replace");
  }, [shown, created]);
}

function useDocumentTitle(title: string, isGenerating: boolean): void {
  useEffect(() => {
    const name = title === "" ? "Outlast" : `${title} · Outlast`;
    document.title = isGenerating ? `● ${name}` : name;
  }, [title, isGenerating]);
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
