/** Plays a generation again. Long waits are shortened: nobody wants to sit through them twice. */

import type { OutlastEvent } from "@outlast/client";
import { useEffect, useMemo, useState } from "react";

/** No pause of a replay is longer than this. */
const LONGEST_GAP_MS = 2_000;
export const SPEEDS = [1, 4, 16] as const;
export type Speed = (typeof SPEEDS)[number];

/** When each event comes in a replay, in milliseconds from its beginning. */
export function replayTimes(events: readonly OutlastEvent[]): readonly number[] {
  let at = 0;
  let last: number | null = null;
  return events.map(({ ts }) => {
    const now = Date.parse(ts);
    at += Math.min(LONGEST_GAP_MS, Math.max(0, now - (last ?? now)));
    last = now;
    return at;
  });
}

/** How many events have come by then. */
export function countAt(times: readonly number[], at: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

export interface Replay {
  /** How many events are shown. */
  readonly count: number;
  readonly at: number;
  readonly length: number;
  readonly isPlaying: boolean;
  readonly speed: Speed;
  readonly setSpeed: (speed: Speed) => void;
  readonly toggle: () => void;
  readonly seek: (at: number) => void;
}

/** Without a position everything there is is shown, also what is still to come. */
export function useReplay(events: readonly OutlastEvent[], size: number): Replay {
  const [at, setAt] = useState<number | null>(null);
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState<Speed>(4);
  // The list grows in place: its size says when it is another one.
  const times = useMemo(() => replayTimes(events), [events, size]);
  const length = times.at(-1) ?? 0;
  if (isPlaying && at !== null && at >= length) {
    setPlaying(false);
    setAt(null);
  }
  useEffect(() => {
    if (!isPlaying) return;
    let last = performance.now();
    let frame = requestAnimationFrame(function step(now) {
      const passed = (now - last) * speed;
      last = now;
      // A last frame may come when the end has been reached, and must not begin anew.
      setAt((at) => (at === null ? null : at + passed));
      frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  }, [isPlaying, speed]);
  return {
    count: at === null ? size : countAt(times, at),
    at: at ?? length,
    length,
    isPlaying,
    speed,
    setSpeed,
    toggle: () => {
      if (!isPlaying && at === null) setAt(0);
      setPlaying(!isPlaying);
    },
    seek: (value) => {
      setPlaying(false);
      setAt(value >= length ? null : value);
    },
  };
}
