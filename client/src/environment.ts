/** The state of page and device. Outside of a page, in Node for example, nothing is ever hidden. */

export type Change = "online" | "offline" | "visible" | "hidden";

export interface Environment {
  isOnline(): boolean;
  isVisible(): boolean;
  /** Calls back on every change until the returned function is called. */
  watch(changed: (what: Change) => void): () => void;
}

/** `pageshow` fires when a page comes back from the page cache. Its connections are gone by then. */
const EVENTS = ["online", "offline", "pageshow", "pagehide", "visibilitychange"];

export const surroundings: Environment = {
  isOnline: () => globalThis.navigator?.onLine !== false,
  isVisible: () => globalThis.document?.visibilityState !== "hidden",
  watch(changed) {
    if (!globalThis.addEventListener) return () => {};
    const tell = ({ type }: Event): void => {
      if (type === "online" || type === "offline") changed(type);
      else changed(type !== "pagehide" && surroundings.isVisible() ? "visible" : "hidden");
    };
    // `visibilitychange` is an event of the document, and bubbles.
    for (const name of EVENTS) addEventListener(name, tell);
    return () => {
      for (const name of EVENTS) removeEventListener(name, tell);
    };
  },
};
