import type { ReactNode } from "react";

/** Placeholder lines. They appear late, so that a conversation that loads quickly shows none. */
export function LoadingState(): ReactNode {
  return (
    <div className="loading" role="status" aria-label="Loading conversation">
      <span />
      <span />
      <span />
    </div>
  );
}
