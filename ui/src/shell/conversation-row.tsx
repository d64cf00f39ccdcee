/** One conversation in the list, with its state. */

import type { ConversationDocument, ConversationStatus } from "@outlast/client";
import { memo, useEffect, useRef, useState } from "react";
import type { ReactNode } from "react";
import { Icon } from "./icon";
import { Link } from "./link";
import { RenameField } from "./rename-field";
import { titleOf } from "./title";

/** The dot beside the title and what it means. Null where nothing is under way and nobody has to act. */
const STATES: Readonly<Record<ConversationStatus, readonly [string, string] | null>> = {
  idle: null,
  generating: ["live", "answering"],
  awaiting_approval: ["waits", "waiting for your decision"],
  paused: ["waits", "paused"],
  interrupted: ["waits", "interrupted"],
  complete: null,
  cancelled: null,
  error: ["failed", "failed"],
};

export interface ConversationRowProps {
  readonly conversation: ConversationDocument;
  readonly isCurrent: boolean;
  readonly onOpen: () => void;
  readonly onRename: (title: string | null) => Promise<unknown>;
  readonly onDelete: () => void;
}

export const ConversationRow = memo(function ConversationRow(props: ConversationRowProps): ReactNode {
  const { conversation, isCurrent, onOpen, onRename, onDelete } = props;
  const [isRenaming, setRenaming] = useState(false);
  const pencil = useRef<HTMLButtonElement>(null);
  const wasRenaming = useRef(false);
  useEffect(() => {
    // Closing the field loses the focus, unless the person moved it elsewhere.
    if (wasRenaming.current && document.activeElement === document.body) pencil.current?.focus();
    wasRenaming.current = isRenaming;
  }, [isRenaming]);
  const title = titleOf(conversation);
  const state = STATES[conversation.generationStatus];
  if (isRenaming)
    return (
      <li className="conversation-row">
        <RenameField title={conversation.title} onRename={onRename} onClose={() => setRenaming(false)} />
      </li>
    );
  return (
    <li className={isCurrent ? "conversation-row is-current" : "conversation-row"}>
      <Link
        to={{ type: "conversation", id: conversation.id }}
        className="conversation-link"
        isCurrent={isCurrent}
        onFollow={onOpen}
      >
        <bdi>{title}</bdi>
        {state && (
          <span className={`dot dot-${state[0]}`} title={state[1]}>
            <span className="visually-hidden">, {state[1]}</span>
          </span>
        )}
      </Link>
      <span className="row-actions">
        <button
          ref={pencil}
          type="button"
          className="icon-button"
          aria-label={`Rename ${title}`}
          title="Rename"
          onClick={() => setRenaming(true)}
        >
          <Icon name="pencil" />
        </button>
        <button
          type="button"
          className="icon-button"
          aria-label={`Delete ${title}`}
          title="Delete"
          onClick={onDelete}
        >
          <Icon name="trash" />
        </button>
      </span>
    </li>
  );
}, isSameRow);

/** The callbacks are ignored: they do the same each time. */
function isSameRow(before: ConversationRowProps, now: ConversationRowProps): boolean {
  return before.conversation === now.conversation && before.isCurrent === now.isCurrent;
}
