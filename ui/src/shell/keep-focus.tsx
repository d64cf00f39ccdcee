/** Where something disappears under the focus, it goes to a place nearby rather than to the top of the page. */

import { useEffect, useRef } from "react";
import type { ReactNode } from "react";

export interface KeepFocusProps {
  /** What the children are about. When it changes, the one with the focus may be gone. */
  readonly about: string;
  /** Where the focus goes then: the nearest ancestor of this kind. */
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
