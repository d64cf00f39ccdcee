/** When the focused element disappears, moves the focus to a nearby element instead of the top of the page. */

import { useEffect, useRef } from "react";
import type { ReactNode } from "react";

export interface KeepFocusProps {
  /** Identifies what the children show. When it changes, the focused element may be gone. */
  readonly about: string;
  /** The selector of the ancestor that gets the focus then. */
  readonly to: string;
  readonly children: ReactNode;
}

export function KeepFocus({ about, to, children }: KeepFocusProps): ReactNode {
  const place = useRef<HTMLDivElement>(null);
  const hadFocus = useRef(false);
  useEffect(() => {
    if (!hadFocus.current || document.activeElement !== document.body) return;
    hadFocus.current = false;
    place.current?.closest<HTMLElement>(to)?.focus({ preventScroll: true });
  }, [about, to]);
  return (
    <div
      ref={place}
      className="keep-focus"
      onFocus={() => (hadFocus.current = true)}
      onBlur={({ relatedTarget }) => {
        if (relatedTarget !== null) hadFocus.current = false;
      }}
    >
      {children}
    </div>
  );
}
