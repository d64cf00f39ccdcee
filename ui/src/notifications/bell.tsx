/** The bell with the number of unread notifications, and the list it opens. */

import type { Notification } from "@outlast/client/notifications";
import { useEffect, useRef, useState } from "react";
import type { ReactNode } from "react";
import { Icon } from "../shell/icon";
import { Link } from "../shell/link";
import { titleOf } from "../shell/title";
import { PushOffer } from "./push-offer";
import { notifications, useArrivals, useNotifications, WORDS } from "./use-notifications";

/** The largest number that fits on the bell. */
const SHOWN_MAX = 99;

export function Bell({ onFollow }: { readonly onFollow: () => void }): ReactNode {
  const { unread } = useNotifications();
  const [isOpen, setOpen] = useState(false);
  useArrivals();
  return (
    <>
      <button
        type="button"
        className="icon-button bell"
        aria-label={unread === 0 ? "Notifications" : `Notifications, ${unread} unread`}
        aria-haspopup="dialog"
        onClick={() => setOpen(true)}
      >
        <Icon name="bell" />
        <Count unread={unread} />
      </button>
      {isOpen && <Center onClose={() => setOpen(false)} onFollow={onFollow} />}
    </>
  );
}

export function Count({ unread }: { readonly unread: number }): ReactNode {
  if (unread === 0) return null;
  return (
    <span className="bell-count" aria-hidden="true">
      {unread > SHOWN_MAX ? `${SHOWN_MAX}+` : unread}
    </span>
  );
}

interface CenterProps {
  readonly onClose: () => void;
  readonly onFollow: () => void;
}

function Center({ onClose, onFollow }: CenterProps): ReactNode {
  const { notifications: list, unread, error } = useNotifications();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const close = (): void => dialog.current?.close();
  const follow = (): void => {
    close();
    onFollow();
  };
  return (
    <dialog
      ref={dialog}
      className="dialog notification-center"
      aria-labelledby="center-title"
      onClose={onClose}
    >
      <header>
        <h2 id="center-title">Notifications</h2>
        {unread > 0 && (
          <button
            type="button"
            className="quiet-button"
            onClick={() => void notifications.markAllRead().catch(() => {})}
          >
            Mark all as read
          </button>
        )}
        <button type="button" className="icon-button" aria-label="Close notifications" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      {error !== null && <p role="alert">Could not load notifications: {error.detail}.</p>}
      {list.length === 0 && error === null && (
        <p className="center-empty">
          Nothing yet. If an answer finishes while you are away, it will be listed here.
        </p>
      )}
      <ul>
        {list.map((one) => (
          <Row key={one.id} one={one} onFollow={follow} />
        ))}
      </ul>
      <PushOffer />
    </dialog>
  );
}

function Row({ one, onFollow }: { readonly one: Notification; readonly onFollow: () => void }): ReactNode {
  const follow = (): void => {
    notifications.markRead(one.id).catch(() => {});
    onFollow();
  };
  return (
    <li className={one.readAt === null ? "notification is-unread" : "notification"}>
      <Link to={{ type: "conversation", id: one.conversationId }} onFollow={follow}>
        <span className={`notification-words kind-${one.kind}`}>
          {WORDS[one.kind]}
          {one.readAt === null && <span className="visually-hidden">, unread</span>}
        </span>
        <bdi className="notification-title">{titleOf(one)}</bdi>
        <time dateTime={one.createdAt}>{when(one.createdAt)}</time>
      </Link>
    </li>
  );
}

const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function when(at: string): string {
  return TIME.format(new Date(at));
}
