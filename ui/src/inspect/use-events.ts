/** All events of a generation, as they are and as they come. */

import { isEnd, OutlastError } from "@outlast/client";
import type { OutlastEvent } from "@outlast/client";
import { useEffect, useState } from "react";
import { client } from "../client";

export interface Log {
  /** Grows in place: `size` tells when. */
  readonly events: readonly OutlastEvent[];
  readonly size: number;
  readonly isOver: boolean;
  /** Whether the events are gone and only what they added up to is left. */
  readonly isForgotten: boolean;
  readonly error: OutlastError | null;
}

const NOTHING: Log = {
  events: [],
  size: 0,
  isOver: false,
  isForgotten: false,
  error: null,
};

export function useEvents(generationId: string): Log {
  const [log, setLog] = useState<Log>(NOTHING);
  useEffect(() => {
    const stop = new AbortController();
    const events: OutlastEvent[] = [];
    let frame = 0;
    let rest: Partial<Log> = {};
    // A finished generation arrives all at once: it is drawn once a frame, not once an event.
    const tell = (change: Partial<Log>): void => {
      rest = { ...rest, ...change };
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setLog({ ...NOTHING, ...rest, events, size: events.length });
      });
    };
    const follow = async (signal: AbortSignal): Promise<void> => {
      const after = events.at(-1)?.seq;
      const known = after === undefined ? {} : { after };
      for await (const event of client.subscribeGeneration(generationId, { signal, ...known })) {
        if (event.type === "snapshot") return tell({ isForgotten: true, isOver: true });
        events.push(event);
        tell({ isOver: isEnd(event) });
      }
    };
    // Browsers allow six of these connections for all tabs together. One that nobody looks at has none.
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
  }, [generationId]);
  return log;
}
