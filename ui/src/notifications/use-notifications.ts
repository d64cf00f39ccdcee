/** The notifications of this page's user. */

import { notificationsOf } from "@outlast/client/notifications";
import type { Notification, NotificationsSnapshot } from "@outlast/client/notifications";
import { useEffect, useSyncExternalStore } from "react";
import { client } from "../client";
import { announce } from "../shell/announcer";
import { titleOf } from "../shell/title";

export const notifications = notificationsOf(client);

export function useNotifications(): NotificationsSnapshot {
  return useSyncExternalStore(notifications.subscribe, notifications.snapshot, notifications.initialSnapshot);
}

/** What happened, for each kind. */
export const WORDS: Readonly<Record<Notification["kind"], string>> = {
  completed: "Answer is ready",
  error: "Answer failed",
  cancelled: "Answer was stopped",
  interrupted: "Answer was interrupted",
  approval: "Waiting for your decision",
};

/** Tells a screen reader about each one that arrives. */
export function useArrivals(): void {
  const { latest } = useNotifications();
  useEffect(() => {
    if (latest !== null) announce(`${WORDS[latest.kind]}: ${titleOf(latest)}`);
  }, [latest]);
}

/** A person who reads the answer needs no notification about it. */
export function useReadWith(conversationId: string | null): void {
  const { notifications: list } = useNotifications();
  useEffect(() => {
    const read = (): void => {
      if (document.visibilityState !== "visible") return;
      for (const one of list)
        if (one.readAt === null && one.conversationId === conversationId)
          notifications.markRead(one.id).catch(() => {});
    };
    read();
    document.addEventListener("visibilitychange", read);
    return () => document.removeEventListener("visibilitychange", read);
  }, [list, conversationId]);
}
