/** The current time while a generation runs. */

import { useEffect, useState } from "react";

const TICK_MS = 500;

export function useNow(isRunning: boolean): number | null {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [isRunning]);
  return isRunning ? now : null;
}
