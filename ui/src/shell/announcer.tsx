/** Announcements for screen readers: whole sentences, now and then, never every word of an answer. */

import { useSyncExternalStore } from "react";
import type { ReactNode } from "react";

let said = "";
const listeners = new Set<() => void>();

export function announce(text: string): void {
  // A screen reader ignores text that does not change, so a repeated announcement is made to differ.
  said = said === text ? `${text}\u00a0` : text;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Announcer(): ReactNode {
  const text = useSyncExternalStore(subscribe, () => said);
  return (
    <div className="visually-hidden" role="status" aria-live="polite">
      {text}
    </div>
  );
}
