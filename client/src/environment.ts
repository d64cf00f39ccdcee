/** What the page and the device do, where there is a page. In Node and in workers nothing is ever hidden. */

export type Change = "online" | "offline" | "visible" | "hidden";

export interface Environment {
  isOnline(): boolean;
  isVisible(): boolean;
  /** Calls back on every change until the answer is called. */
  watch(changed: (what: Change) => void): () => void;
}

/** `pageshow`: back from the page cache. The page was frozen, and its connections are gone. */
const EVENTS = ["online", "offline", "pageshow", "pagehide", "visibilitychange"];

/** The real one. */
export const surroundings: Environment = {
  isOnline: () => globalThis.navigator?.onLine !== false,
  isVisible: () => globalThis.document?.visibilityState !== "hidden",
  watch(changed) {
    if (!globalThis.addEventListener) return () => {};
    const tell = ({ type }: Event): void => {
      if (type === "online" || type === "offline") changed(type);
      else changed(type !== "pagehide" && surroundings.isVisible() ? "visible" : "hidden");
    };
    // A change of visibility is an event of the document, and bubbles.
    for (const name of EVENTS) addEventListener(name, tell);
    return () => {
      for (const name of EVENTS) removeEventListener(name, tell);
    };
  },
};
