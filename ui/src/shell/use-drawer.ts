/** The list of conversations as a drawer, on screens too narrow for both. */

import { useCallback, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import type { RefObject } from "react";

const narrow = matchMedia("(max-width: 760px)");

export interface Drawer {
  readonly isOpen: boolean;
  readonly open: () => void;
  readonly close: () => void;
  readonly ref: RefObject<HTMLElement | null>;
}

/** The page behind an open drawer is inert, so the focus moves into the drawer, and back when it closes. */
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
    // A page that was opened from the list may have moved the focus itself.
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
