/** Keeps the end in view while the reader is there, and never moves a reader who is elsewhere. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import type { RefObject } from "react";

/** Zoomed pages round, so this close counts as the end. */
const AT_END_PX = 4;

export interface Follow {
  readonly isFollowing: boolean;
  /** Scrolls to the end and stays there. */
  readonly follow: () => void;
  /** The element that grows. */
  readonly content: RefObject<HTMLDivElement | null>;
}

/** A change of `newest` scrolls to the end: people want to see the message that they just sent. */
export function useFollow(scroller: RefObject<HTMLDivElement | null>, newest: string | undefined): Follow {
  const content = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  /** The scroll position that this hook set last. */
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
    // Once for the current content, and once for what renders because of the scroll.
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
      // Growing text moves the end but not the reader, and retracted text leaves both at the end. So a reader who is
      // above the position that was set here has scrolled up on purpose, however little.
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
