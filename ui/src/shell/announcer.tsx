/** Says to people who do not see the page what happened. Whole sentences, now and then: never each word. */

import { useSyncExternalStore } from "react";
import type { ReactNode } from "react";

let said = "";
const listeners = new Set<() => void>();

export function announce(text: string): void {
  // The same words twice are no change and would not be read again.
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
