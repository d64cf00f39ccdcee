/** All events of a generation, as they are and as they come. */

import { isEnd, OutlastError } from "@outlast/client";
import type { Connection, OutlastEvent } from "@outlast/client";
import { useEffect, useState } from "react";
import { client } from "../client";

export interface Log {
  /** Grows in place: `size` tells when. */
  readonly events: readonly OutlastEvent[];
  readonly size: number;
  readonly isOver: boolean;
  /** Whether the events are gone and only what they added up to is left. */
  readonly isForgotten: boolean;
  readonly connection: Connection;
  readonly error: OutlastError | null;
}

const NOTHING: Log = {
  events: [],
  size: 0,
  isOver: false,
  isForgotten: false,
  connection: { type: "idle" },
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
    const follow = async (): Promise<void> => {
      const onConnection = (connection: Connection): void => tell({ connection });
      const { signal } = stop;
      for await (const event of client.subscribeGeneration(generationId, { signal, onConnection })) {
        if (event.type === "snapshot") return tell({ isForgotten: true, isOver: true });
        events.push(event);
        tell({ isOver: isEnd(event) });
      }
    };
    follow().catch((error: unknown) => {
      if (error instanceof OutlastError) tell({ error });
      else if (!stop.signal.aborted) throw error;
    });
    return () => {
      stop.abort();
      cancelAnimationFrame(frame);
    };
  }, [generationId]);
  return log;
}
