/** All conversations: search, open, rename, delete. A drawer on narrow screens. */

import { useConversations } from "@outlast/client/react";
import type { ConversationDocument } from "@outlast/client";
import { useDeferredValue, useState } from "react";
import type { KeyboardEvent, ReactNode, RefObject } from "react";
import { saveDraft } from "../chat/drafts";
import { forgetUnsent } from "../chat/unsent";
import { go } from "../route";
import type { Route } from "../route";
import { ConversationRow } from "./conversation-row";
import { DeleteDialog } from "./delete-dialog";
import { Icon } from "./icon";
import { isTouch } from "./is-touch";
import { Link } from "./link";
import { Logo } from "./logo";
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
  const { conversations, isLoading, hasMore, error, list } = useConversations();
  const [query, setQuery] = useState("");
  const [doomed, setDoomed] = useState<ConversationDocument | null>(null);
  const words = useDeferredValue(query.trim().toLowerCase());
  const shown = words === "" ? conversations : conversations.filter((one) => matches(one, words));
  const open = (id: string): void => {
    go({ type: "conversation", id });
    onClose();
  };
  const press = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && shown[0] !== undefined && words !== "") open(shown[0].id);
    if (event.key === "Escape" && query !== "") {
      event.stopPropagation();
      setQuery("");
    }
  };
  const escape = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    onClose();
  };
  const remove = async (id: string): Promise<void> => {
    await list.remove(id);
    saveDraft(id, "");
    forgetUnsent(id);
    if (route.type === "conversation" && route.id === id) go({ type: "new" }, "replace");
  };
  const decided = (): void => {
    setDoomed(null);
    // The row may be gone, and with it the button that the focus would go back to.
    requestAnimationFrame(() => {
      if (document.activeElement !== document.body) return;
      const field = isTouch ? null : document.querySelector<HTMLElement>("#main .is-new textarea");
      (field ?? drawerRef.current)?.focus();
    });
  };
  return (
    <nav
      ref={drawerRef}
      className={isOpen ? "sidebar is-open" : "sidebar"}
      aria-label="Conversations"
      tabIndex={-1}
      onKeyDown={escape}
    >
      <div className="sidebar-top">
        <Link to={{ type: "new" }} className="brand" label="Outlast, new chat" onFollow={onClose}>
          <Logo />
          <span>Outlast</span>
        </Link>
        <ThemeToggle />
        <button
          type="button"
          className="icon-button only-narrow"
          aria-label="Close the list"
          onClick={onClose}
        >
          <Icon name="close" />
        </button>
      </div>
      <Link to={{ type: "new" }} className="new-chat" isCurrent={route.type === "new"} onFollow={onClose}>
        <Icon name="plus" />
        <span>New chat</span>
        <kbd aria-hidden="true">{SHIFT_KEY}O</kbd>
      </Link>
      <div className="search">
        <Icon name="search" />
        <input
          ref={searchRef}
          type="search"
          placeholder="Search"
          aria-label="Search conversations"
          value={query}
          onChange={(event) => setQuery(event.target.value)}
          onKeyDown={press}
        />
        <kbd aria-hidden="true">{KEY}K</kbd>
      </div>
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
      <div className="sidebar-notes">
        {error !== null && <p role="alert">The list cannot be read now: {error.detail}.</p>}
        {!isLoading && error === null && shown.length === 0 && (
          <p>{words === "" ? "Your conversations will be here." : "Nothing has this name."}</p>
        )}
        {hasMore && (
          <button type="button" className="quiet-button" onClick={() => void list.loadMore()}>
            {words === "" ? "Load more" : "Search older ones"}
          </button>
        )}
      </div>
      {doomed !== null && (
        <DeleteDialog title={titleOf(doomed)} onDelete={() => remove(doomed.id)} onClose={decided} />
      )}
    </nav>
  );
}

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
const KEY = isMac ? "⌘" : "Ctrl ";
const SHIFT_KEY = isMac ? "⇧⌘" : "Ctrl ⇧ ";

function matches(conversation: ConversationDocument, words: string): boolean {
  const title = titleOf(conversation).toLowerCase();
  return words.split(/\s+/).every((word) => title.includes(word));
}
