/** The list of conversations as a drawer, where the screen is too narrow for both. */

import { useCallback, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import type { RefObject } from "react";

const narrow = matchMedia("(max-width: 760px)");

export interface Drawer {
  readonly isOpen: boolean;
  readonly open: () => void;
  readonly close: () => void;
  readonly ref: RefObject<HTMLElement | null>;
}

/** What is behind an open drawer cannot be reached, so the focus goes into it, and back where it came from. */
export function useDrawer(): Drawer {
  const isNarrow = useSyncExternalStore(subscribe, () => narrow.matches);
  const [isWanted, setWanted] = useState(false);
  const isOpen = isWanted && isNarrow;
  const ref = useRef<HTMLElement>(null);
  const from = useRef<Element | null>(null);
  const wasOpen = useRef(false);
  useLayoutEffect(() => {
    const drawer = ref.current;
    const active = document.activeElement;
    if (isOpen) drawer?.focus({ preventScroll: true });
    // Who went to another page in the list may have been led on by that page.
    else if (wasOpen.current && (drawer?.contains(active) || active === document.body)) {
      const back = from.current;
      (back instanceof HTMLElement && back.isConnected ? back : main())?.focus();
    }
    wasOpen.current = isOpen;
  }, [isOpen]);
  const open = useCallback(() => {
    from.current = document.activeElement;
    setWanted(true);
  }, []);
  const close = useCallback(() => setWanted(false), []);
  return { isOpen, open, close, ref };
}

function main(): HTMLElement | null {
  return document.getElementById("main");
}

function subscribe(listener: () => void): () => void {
  narrow.addEventListener("change", listener);
  return () => narrow.removeEventListener("change", listener);
}
