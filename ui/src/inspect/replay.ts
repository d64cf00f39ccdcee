/** Replays a generation, with long waits shortened. */

import type { OutlastEvent } from "@outlast/client";
import { useEffect, useMemo, useState } from "react";

/** The longest pause in a replay. */
const LONGEST_GAP_MS = 2_000;
export const SPEEDS = [1, 4, 16] as const;
export type Speed = (typeof SPEEDS)[number];

/** When each event occurs in a replay, in milliseconds from the start. */
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

/** The number of events up to a time. */
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
  /** The number of events shown. */
  readonly count: number;
  readonly at: number;
  readonly length: number;
  readonly isPlaying: boolean;
  readonly speed: Speed;
  readonly setSpeed: (speed: Speed) => void;
  readonly toggle: () => void;
  readonly seek: (at: number) => void;
}

/** Without a position, shows every event, including those that are still to arrive. */
export function useReplay(events: readonly OutlastEvent[], size: number): Replay {
  const [at, setAt] = useState<number | null>(null);
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState<Speed>(4);
  // The list grows in place, so its size says when it has changed.
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
      // A last frame may run after the end was reached, and must not start over.
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
