/** A link within the app. A middle click, or a click with a modifier key, opens a tab as usual. */

import type { MouseEvent, ReactNode } from "react";
import { go, pathTo } from "../route";
import type { Route } from "../route";

export interface LinkProps {
  readonly to: Route;
  readonly className?: string;
  readonly label?: string;
  readonly isCurrent?: boolean;
  readonly onFollow?: () => void;
  readonly children: ReactNode;
}

export function Link({ to, className, label, isCurrent = false, onFollow, children }: LinkProps): ReactNode {
  const follow = (event: MouseEvent): void => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
    onFollow?.();
  };
  return (
    <a
      href={pathTo(to)}
      className={className}
      aria-label={label}
      title={label}
      aria-current={isCurrent ? "page" : undefined}
      onClick={follow}
    >
      {children}
    </a>
  );
}
