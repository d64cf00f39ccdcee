/** A conversation, or the place where one begins. */

import { useConversation } from "@outlast/client/react";
import { useEffect, useEffectEvent } from "react";
import type { ReactNode } from "react";
import { go } from "../route";
import { Icon } from "../shell/icon";
import { titleOf } from "../shell/title";
import { Composer } from "./composer";
import { ConnectionNote } from "./connection-note";
import { EmptyState } from "./empty-state";
import { LoadingState } from "./loading-state";
import { MissingState } from "./missing-state";
import { quietly } from "./quietly";
import { keyOf } from "./store-key";
import { Transcript } from "./transcript";
import { useAnnouncements } from "./use-announcements";
import { forgetUnsent } from "./unsent";
import { saveDraft } from "./drafts";
import { useModel } from "./use-model";
import { useSending } from "./use-sending";

export interface ChatPageProps {
  /** Null for a new conversation. */
  readonly id: string | null;
  readonly onMenu: () => void;
}

export function ChatPage({ id, onMenu }: ChatPageProps): ReactNode {
  const chat = useConversation(id);
  const model = useModel();
  const { view, pending, connection, isGenerating } = chat;
  const title = view === null ? "" : titleOf(view.conversation);

  // The first message made it: from now on the address says which conversation this is.
  useEffect(() => {
    if (id === null && chat.id !== null) go({ type: "conversation", id: chat.id }, "replace");
  }, [id, chat.id]);

  useEffect(() => {
    const name = title === "" ? "Outlast" : `${title} · Outlast`;
    document.title = isGenerating ? `● ${name}` : name;
  }, [title, isGenerating]);

  useAnnouncements(chat);
  useEscape(() => {
    if (isGenerating) quietly(chat.cancel());
  });

  const sending = useSending(chat, model.chosen);
  const isEmpty = chat.id === null && pending.length === 0 && sending.failed.length === 0;
  const isMissing = connection.type === "ended" && connection.error?.status === 404;
  useEffect(() => {
    if (isMissing && id !== null) forget(id);
  }, [isMissing, id]);
  return (
    <section className={id === null ? "chat is-new" : "chat"} aria-label="Conversation">
      <header className="page-head">
        <button
          type="button"
          className="icon-button only-narrow"
          aria-label="Show conversations"
          onClick={onMenu}
        >
          <Icon name="menu" />
        </button>
        <h1 className={isEmpty ? "only-narrow" : undefined}>
          <bdi>{title || "Outlast"}</bdi>
        </h1>
        {!isMissing && (
          <ConnectionNote
            key={`n${keyOf(chat.conversation)}`}
            connection={connection}
            onRetry={chat.reconnect}
          />
        )}
      </header>
      {isMissing ? (
        <MissingState />
      ) : isEmpty ? (
        <EmptyState onSend={(text) => sending.send(text, "queue")} />
      ) : view === null && chat.id !== null && pending.length === 0 ? (
        <LoadingState />
      ) : (
        <Transcript key={keyOf(chat.conversation)} chat={chat} sending={sending} />
      )}
      {!isMissing && (
        <Composer key={`c${keyOf(chat.conversation)}`} chat={chat} model={model} onSend={sending.send} />
      )}
    </section>
  );
}

/** What was written for a conversation that is gone. */
function forget(id: string): void {
  saveDraft(id, "");
  forgetUnsent(id);
}

/** Escape stops the answer, unless something that is open has a use for it. */
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
