/** Says when the server will try again after a failed attempt. */

import type { ScheduledRetry } from "@outlast/client";
import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { duration } from "../shell/duration";
import { sentence } from "../shell/sentence";

const TICK_MS = 250;

export function RetryNote({ retry }: { readonly retry: ScheduledRetry }): ReactNode {
  const [left, setLeft] = useState(() => leftOf(retry));
  useEffect(() => {
    const timer = setInterval(() => setLeft(leftOf(retry)), TICK_MS);
    return () => clearInterval(timer);
  }, [retry]);
  const seconds = Math.ceil(left / 1_000);
  return (
    <div className="turn-note is-retry">
      <span className="pulse" />
      <span>
        {sentence(retry.reason)} {seconds > 0 ? `Retrying in ${duration(seconds * 1_000)}` : "Retrying"}{" "}
        (attempt {retry.attempt}).
      </span>
    </div>
  );
}

/** Clamped, because the clocks of server and device may differ. */
function leftOf({ ts, delayMs }: ScheduledRetry): number {
  return Math.min(delayMs, Math.max(0, Date.parse(ts) + delayMs - Date.now()));
}
