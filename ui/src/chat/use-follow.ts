/** Keeps the end in sight while the reader is there, and leaves the reader alone elsewhere. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import type { RefObject } from "react";

/** This near to the end is at the end: zoomed pages round. */
const AT_END_PX = 4;

export interface Follow {
  readonly isFollowing: boolean;
  /** Goes to the end and stays there. */
  readonly follow: () => void;
  /** What grows. */
  readonly content: RefObject<HTMLDivElement | null>;
}

/** Whoever sends something wants to see it: a change of `newest` leads to the end. */
export function useFollow(scroller: RefObject<HTMLDivElement | null>, newest: string | undefined): Follow {
  const content = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  /** Where this has put the reader last. */
  const placed = useRef(0);
  const [isFollowing, setFollowing] = useState(true);

  const set = useCallback((value: boolean) => {
    following.current = value;
    setFollowing(value);
  }, []);

  const toEnd = useCallback(() => {
    const element = scroller.current;
    if (element === null) return;
    element.scrollTop = element.scrollHeight;
    placed.current = element.scrollTop;
  }, [scroller]);

  const follow = useCallback(() => {
    set(true);
    // Once for what is there, and once for what is drawn because of it.
    toEnd();
    requestAnimationFrame(toEnd);
  }, [set, toEnd]);

  useLayoutEffect(() => {
    if (newest !== undefined) follow();
  }, [newest, follow]);

  useEffect(() => {
    const element = scroller.current;
    const inner = content.current;
    if (element === null || inner === null) return;
    const scrolled = (): void => {
      const { scrollTop, scrollHeight, clientHeight } = element;
      const isAtEnd = scrollHeight - scrollTop - clientHeight <= AT_END_PX;
      // Growing text moves the end, not the reader; text that was withdrawn leaves both at the end. Whoever is found
      // above the place where this has put them wants to read on there, however small the move.
      if (following.current) {
        if (!isAtEnd && scrollTop < placed.current - 1) set(false);
      } else if (isAtEnd) {
        placed.current = scrollTop;
        set(true);
      }
    };
    const grew = new ResizeObserver(() => following.current && toEnd());
    grew.observe(inner);
    grew.observe(element);
    element.addEventListener("scroll", scrolled, { passive: true });
    toEnd();
    return () => {
      grew.disconnect();
      element.removeEventListener("scroll", scrolled);
    };
  }, [scroller, set, toEnd]);

  return { isFollowing, follow, content };
}
