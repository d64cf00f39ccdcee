/** The conversations: search, open, rename, delete. A drawer on narrow screens. */

import { useConversations } from "@outlast/client/react";
import type { UseConversations } from "@outlast/client/react";
import type { ConversationDocument } from "@outlast/client";
import { useDeferredValue, useState } from "react";
import type { KeyboardEvent, ReactNode, RefObject } from "react";
import { forgetConversation } from "../chat/forget";
import { Bell } from "../notifications/bell";
import { go } from "../route";
import type { Route } from "../route";
import { useUser } from "../user";
import { Account } from "./account";
import { ConversationRow } from "./conversation-row";
import { DeleteDialog } from "./delete-dialog";
import { Icon } from "./icon";
import { isTouch } from "./is-touch";
import { Link } from "./link";
import { Logo } from "./logo";
import { OperateLink } from "./operate-link";
import { ThemeToggle } from "./theme-toggle";
import { titleOf } from "./title";

export interface SidebarProps {
  readonly route: Route;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly searchRef: RefObject<HTMLInputElement | null>;
  readonly drawerRef: RefObject<HTMLElement | null>;
}

export function Sidebar({ route, isOpen, onClose, searchRef, drawerRef }: SidebarProps): ReactNode {
  const conversations = useConversations();
  const { list } = conversations;
  const user = useUser();
  const [query, setQuery] = useState("");
  const [doomed, setDoomed] = useState<ConversationDocument | null>(null);
  const words = useDeferredValue(query.trim().toLowerCase());
  const shown = conversations.conversations.filter((one) => matches(one, words));
  const openFirst = (): void => {
    if (words === "" || shown[0] === undefined) return;
    go({ type: "conversation", id: shown[0].id });
    onClose();
  };
  const escape = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    onClose();
  };
  const remove = async (id: string): Promise<void> => {
    await list.remove(id);
    forgetConversation(user, id);
    if (route.type === "conversation" && route.id === id) go({ type: "new" }, "replace");
  };
  const decided = (): void => {
    setDoomed(null);
    requestAnimationFrame(() => keepFocus(drawerRef.current));
  };
  return (
    <nav
      ref={drawerRef}
      className={isOpen ? "sidebar is-open" : "sidebar"}
      aria-label="Conversations"
      tabIndex={-1}
      onKeyDown={escape}
    >
      <Top isNew={route.type === "new"} onClose={onClose} />
      <Search query={query} onChange={setQuery} onEnter={openFirst} fieldRef={searchRef} />
      <ul className="conversations" aria-label="Conversations, newest first">
        {shown.map((conversation) => (
          <ConversationRow
            key={conversation.id}
            conversation={conversation}
            isCurrent={route.type === "conversation" && route.id === conversation.id}
            onOpen={onClose}
            onRename={(title) => list.rename(conversation.id, title)}
            onDelete={() => setDoomed(conversation)}
          />
        ))}
      </ul>
      <Notes conversations={conversations} isSearch={words !== ""} isEmpty={shown.length === 0} />
      <OperateLink isCurrent={route.type === "operate"} onFollow={onClose} />
      <Account />
      {doomed !== null && (
        <DeleteDialog title={titleOf(doomed)} onDelete={() => remove(doomed.id)} onClose={decided} />
      )}
    </nav>
  );
}

function Top({ isNew, onClose }: { readonly isNew: boolean; readonly onClose: () => void }): ReactNode {
  return (
    <>
      <div className="sidebar-top">
        <Link to={{ type: "new" }} className="brand" label="Outlast, new chat" onFollow={onClose}>
          <Logo />
          <span>Outlast</span>
        </Link>
        <Bell onFollow={onClose} />
        <ThemeToggle />
        <button
          type="button"
          className="icon-button only-narrow"
          aria-label="Close conversations"
          onClick={onClose}
        >
          <Icon name="close" />
        </button>
      </div>
      <Link to={{ type: "new" }} className="new-chat" isCurrent={isNew} onFollow={onClose}>
        <Icon name="plus" />
        <span>New chat</span>
        <kbd aria-hidden="true">{SHIFT_KEY}O</kbd>
      </Link>
    </>
  );
}

interface SearchProps {
  readonly query: string;
  readonly onChange: (query: string) => void;
  readonly onEnter: () => void;
  readonly fieldRef: RefObject<HTMLInputElement | null>;
}

function Search({ query, onChange, onEnter, fieldRef }: SearchProps): ReactNode {
  const press = (event: KeyboardEvent): void => {
    if (event.key === "Enter") onEnter();
    if (event.key !== "Escape" || query === "") return;
    event.stopPropagation();
    onChange("");
  };
  return (
    <div className="search">
      <Icon name="search" />
      <input
        ref={fieldRef}
        type="search"
        placeholder="Search"
        aria-label="Search conversations"
        value={query}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={press}
      />
      <kbd aria-hidden="true">{KEY}K</kbd>
    </div>
  );
}

interface NotesProps {
  readonly conversations: UseConversations;
  readonly isSearch: boolean;
  /** Whether no conversation is listed. */
  readonly isEmpty: boolean;
}

function Notes({ conversations, isSearch, isEmpty }: NotesProps): ReactNode {
  const { isLoading, hasMore, error, list } = conversations;
  return (
    <div className="sidebar-notes">
      {error !== null && <p role="alert">Could not load conversations: {error.detail}.</p>}
      {!isLoading && error === null && isEmpty && (
        <p>{isSearch ? "No matching conversations." : "Your conversations will appear here."}</p>
      )}
      {hasMore && (
        <button type="button" className="quiet-button" onClick={() => void list.loadMore()}>
          {isSearch ? "Search older conversations" : "Load more"}
        </button>
      )}
    </div>
  );
}

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
const KEY = isMac ? "⌘" : "Ctrl ";
const SHIFT_KEY = isMac ? "⇧⌘" : "Ctrl ⇧ ";

function matches(conversation: ConversationDocument, words: string): boolean {
  const title = titleOf(conversation).toLowerCase();
  return words.split(/\s+/).every((word) => title.includes(word));
}

/** The deleted row may have held the button that the dialog would give the focus back to. */
function keepFocus(drawer: HTMLElement | null): void {
  if (document.activeElement !== document.body) return;
  const field = isTouch ? null : document.querySelector<HTMLElement>("#main .is-new textarea");
  (field ?? drawer)?.focus();
}
