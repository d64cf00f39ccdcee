/** The client of this page. It notices when the server wants to know who is there. */

import { OutlastClient } from "@outlast/client";
import { useSyncExternalStore } from "react";

const UNAUTHENTICATED = 401;
const listeners = new Set<() => void>();
let isLoginNeeded = false;

/** As `fetch`, for calls that the client does not have. */
export const noticing: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (response.status === UNAUTHENTICATED && !isLoginNeeded) {
    isLoginNeeded = true;
    for (const listener of listeners) listener();
  }
  return response;
};

// A WebSocket is refused without a reason, and the client then asks by fetch.
export const client = new OutlastClient({ fetch: noticing, transport: "websocket" });

/** Whether a request was refused because nobody is logged in. Only loading the page again undoes that. */
export function useLoginNeeded(): boolean {
  return useSyncExternalStore(subscribe, () => isLoginNeeded);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
