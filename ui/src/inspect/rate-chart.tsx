/** How fast the answer arrived. */

import type { OutlastEvent } from "@outlast/client";
import { useMemo } from "react";
import type { ReactNode } from "react";
import { rate } from "./timeline";
import type { Timeline } from "./timeline";

const BINS = 100;
const HEIGHT = 48;

export interface RateChartProps {
  readonly events: readonly OutlastEvent[];
  readonly timeline: Timeline;
  readonly cursor: number | null;
}

export function RateChart({ events, timeline, cursor }: RateChartProps): ReactNode {
  // The events grow in place, but the timeline is a new object whenever they do.
  const counts = useMemo(() => rate(events, timeline, BINS), [events, timeline]);
  const most = Math.max(1, ...counts);
  const seconds = (timeline.end - timeline.start) / 1_000;
  const perSecond = seconds > 0 ? timeline.chunks / seconds : 0;
  const path = counts
    .map((count, place) => {
      const height = count === 0 ? 0 : Math.max(1.5, (count / most) * (HEIGHT - 2));
      return height === 0 ? "" : `M${place + 0.15} ${HEIGHT}v${-height}h.7v${height}z`;
    })
    .join("");
  const at =
    cursor === null ? null : ((cursor - timeline.start) / Math.max(1, timeline.end - timeline.start)) * 100;
  return (
    <figure className="rate">
      <svg
        viewBox={`0 0 ${BINS} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label="Chunks over time"
      >
        <path d={path} />
        {at !== null && <path className="rate-cursor" d={`M${at} 0v${HEIGHT}`} />}
      </svg>
      <figcaption>
        {timeline.chunks.toLocaleString("en")} chunks, {perSecond.toFixed(perSecond < 10 ? 1 : 0)} per second
        on average
      </figcaption>
    </figure>
  );
}
