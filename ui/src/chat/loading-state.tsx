import type { ReactNode } from "react";

/** Grey lines where the conversation will be. They come late, so that a quick answer shows none. */
export function LoadingState(): ReactNode {
  return (
    <div className="loading" role="status" aria-label="Loading the conversation">
      <span />
      <span />
      <span />
    </div>
  );
}
