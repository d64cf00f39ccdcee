/** Moves the window over a long conversation as the reader scrolls, without moving the text on screen. */

import type { Message } from "@outlast/client";
import { useEffect, useEffectEvent, useLayoutEffect, useRef, useState } from "react";
import type { RefObject } from "react";
import { quietly } from "./quietly";
import { AT_END, earlier, later, MOST, rangeOf, windowOf } from "./window";
import type { Range, Window } from "./window";

/** Rows are rendered this far before they scroll into view. */
const AHEAD = "900px";

export interface WindowOptions {
  readonly messages: readonly Message[];
  readonly scroller: RefObject<HTMLDivElement | null>;
  readonly isFollowing: boolean;
  /** Null if there are no older messages. */
  readonly loadOlder: (() => Promise<void>) | null;
}

export interface Rows extends Range {
  readonly top: RefObject<HTMLDivElement | null>;
  readonly bottom: RefObject<HTMLDivElement | null>;
  readonly toEnd: () => void;
}

interface Anchor {
  readonly id: string;
  readonly top: number;
}

export function useWindow({ messages, scroller, isFollowing, loadOlder }: WindowOptions): Rows {
  const [window, setWindow] = useState<Window>(AT_END);
  const top = useRef<HTMLDivElement>(null);
  const bottom = useRef<HTMLDivElement>(null);
  const anchor = useRef<Anchor | null>(null);
  const range = rangeOf(window, messages);

  // At the end only the last messages are needed; a reader who scrolled away keeps what was there.
  if (isFollowing && window.from !== null && range.end - range.start > MOST) setWindow(AT_END);
  if (!isFollowing && window.from === null && messages.length > 0) setWindow(windowOf(range, messages));

  const move = (next: Window): void => {
    anchor.current = findAnchor(scroller.current);
    setWindow(next);
  };
  const reach = useEffectEvent((edge: Element) => {
    if (edge === bottom.current) move(later(range, messages));
    else if (range.start > 0) move(earlier(range, messages));
    else if (loadOlder !== null) quietly(loadOlder());
  });

  const first = messages[range.start]?.id;
  const last = messages[range.end - 1]?.id;
  const oldest = messages[0]?.id;
  useLayoutEffect(() => {
    const element = scroller.current;
    const kept = anchor.current;
    anchor.current = null;
    if (element === null || kept === null) return;
    const row = element.querySelector(`[data-message="${CSS.escape(kept.id)}"]`);
    if (row !== null) element.scrollTop += row.getBoundingClientRect().top - kept.top;
  }, [first, last, scroller]);

  // Observed again after each move, so that an edge that is still in view is reported again.
  useEffect(() => {
    const observer = new IntersectionObserver(
      (entries) => entries.forEach((entry) => entry.isIntersecting && reach(entry.target)),
      { root: scroller.current, rootMargin: `${AHEAD} 0px` },
    );
    for (const edge of [top.current, bottom.current]) if (edge !== null) observer.observe(edge);
    return () => observer.disconnect();
  }, [first, last, oldest, scroller]);

  return { ...range, top, bottom, toEnd: () => setWindow(AT_END) };
}

/** The first visible row, which must stay where it is. */
function findAnchor(scroller: HTMLDivElement | null): Anchor | null {
  if (scroller === null) return null;
  const edge = scroller.getBoundingClientRect().top;
  for (const row of scroller.querySelectorAll<HTMLElement>("[data-message]")) {
    const { top, bottom } = row.getBoundingClientRect();
    if (bottom > edge) return { id: row.dataset["message"] ?? "", top };
  }
  return null;
}
