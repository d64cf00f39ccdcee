/** The state of the server, read again every few seconds while the page is visible. */

import { OutlastError } from "@outlast/client";
import type { Overview } from "@outlast/client";
import { useEffect, useState } from "react";
import { client } from "../client";

const AGAIN_MS = 5_000;

export interface UseOverview {
  readonly overview: Overview | null;
  /** Why it could not be read; null if it could. */
  readonly error: string | null;
}

export function useOverview(): UseOverview {
  const [state, setState] = useState<UseOverview>({ overview: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    const read = (): void => {
      if (document.hidden) return;
      client.overview({ signal: stop.signal }).then(
        (overview) => setState({ overview, error: null }),
        (error: unknown) => {
          if (!stop.signal.aborted) setState((before) => ({ ...before, error: detailOf(error) }));
        },
      );
    };
    read();
    const timer = setInterval(read, AGAIN_MS);
    document.addEventListener("visibilitychange", read);
    return () => {
      stop.abort();
      clearInterval(timer);
      document.removeEventListener("visibilitychange", read);
    };
  }, []);
  return state;
}

function detailOf(error: unknown): string {
  return error instanceof OutlastError ? error.detail : "the server cannot be reached";
}
