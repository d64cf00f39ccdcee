/** The events of a generation: those that are stored, and new ones as they arrive. */

import { isEnd, OutlastError } from "@outlast/client";
import type { OutlastEvent, View } from "@outlast/client";
import { useEffect, useState } from "react";
import { client } from "../client";

export interface Log {
  /** Grows in place; `size` changes with it. */
  readonly events: readonly OutlastEvent[];
  readonly size: number;
  readonly isOver: boolean;
  /** The messages of the generation, if its events are no longer stored. */
  readonly snapshot: View | null;
  readonly error: OutlastError | null;
}

const NOTHING: Log = { events: [], size: 0, isOver: false, snapshot: null, error: null };

export function useEvents(generationId: string): Log {
  const [log, setLog] = useState<Log>(NOTHING);
  useEffect(() => watch(generationId, setLog), [generationId]);
  return log;
}

/** Reports the log until the returned function is called. */
function watch(generationId: string, report: (log: Log) => void): () => void {
  const stop = new AbortController();
  const events: OutlastEvent[] = [];
  let frame = 0;
  let rest: Partial<Log> = {};
  // A finished generation arrives all at once, so the page renders once per frame, not once per event.
  const tell = (change: Partial<Log>): void => {
    rest = { ...rest, ...change };
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      report({ ...NOTHING, ...rest, events, size: events.length });
    });
  };
  const follow = async (signal: AbortSignal): Promise<void> => {
    const after = events.at(-1)?.seq;
    const known = after === undefined ? {} : { after };
    for await (const event of client.subscribeGeneration(generationId, { signal, ...known })) {
      if (event.type === "snapshot") return tell({ snapshot: event.payload, isOver: true });
      events.push(event);
      tell({ isOver: isEnd(event) });
    }
  };
  // Browsers allow six of these connections for all tabs together, so a hidden tab closes its own.
  let following: AbortController | null = null;
  const look = (): void => {
    const isSeen = document.visibilityState === "visible" && !stop.signal.aborted && !rest.isOver;
    if (isSeen === (following !== null)) return;
    following?.abort();
    following = isSeen ? new AbortController() : null;
    if (following === null) return;
    const { signal } = following;
    follow(signal).catch((error: unknown) => {
      if (error instanceof OutlastError) tell({ error });
      else if (!signal.aborted) throw error;
    });
  };
  look();
  document.addEventListener("visibilitychange", look, stop);
  return () => {
    stop.abort();
    look();
    cancelAnimationFrame(frame);
  };
}
