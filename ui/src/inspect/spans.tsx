/** Attempts and waits as bars on one time scale. */

import type { CSSProperties, ReactNode } from "react";
import { duration } from "../shell/duration";
import type { Lane } from "./agent-spans";
import type { Span } from "./spans-of-time";
import type { Timeline } from "./timeline";

/** Names of marks that are written out below their line. */
const LISTED_MAX = 6;

export interface SpansProps {
  readonly timeline: Timeline;
  /** The time that the replay is at; null at the end. */
  readonly cursor: number | null;
}

export function Spans({ timeline, cursor }: SpansProps): ReactNode {
  const { start, end, spans, lanes } = timeline;
  const scale = (at: number): number => ((at - start) / Math.max(1, end - start)) * 100;
  return (
    <ol className="spans" aria-label="Timeline">
      {spans.map((span, place) => {
        const to = span.to ?? end;
        const style: CSSProperties = {
          left: `${Math.min(99, scale(span.from))}%`,
          width: `max(3px, ${scale(to) - scale(span.from)}%)`,
        };
        return (
          <li key={place} className={`span is-${span.kind}${span.trouble === null ? "" : " is-trouble"}`}>
            <span className="span-name">{span.name}</span>
            <span className="span-time">
              {duration(to - span.from)}
              {span.to === null && "…"}
            </span>
            <span className="span-track" aria-hidden="true">
              <span className={span.isRetracted ? "span-bar is-retracted" : "span-bar"} style={style} />
              {cursor !== null && <span className="cursor" style={{ left: `${scale(cursor)}%` }} />}
            </span>
            <Note span={span} />
          </li>
        );
      })}
      {lanes.map((lane) => (
        <LaneRow key={lane.name} lane={lane} end={end} scale={scale} />
      ))}
    </ol>
  );
}

interface LaneRowProps {
  readonly lane: Lane;
  readonly end: number;
  readonly scale: (at: number) => number;
}

function LaneRow({ lane, end, scale }: LaneRowProps): ReactNode {
  const { name, marks } = lane;
  return (
    <li className="span is-lane">
      <span className="span-name">{name}</span>
      <span className="span-time">{marks.length}</span>
      <span className="span-track" aria-hidden="true">
        {marks.map(({ name, from, to, tone }, place) => (
          <span
            key={place}
            className={`span-bar is-${tone}`}
            title={name}
            style={{
              left: `${Math.min(99, scale(from))}%`,
              width: `max(4px, ${scale(to ?? end) - scale(from)}%)`,
            }}
          />
        ))}
      </span>
      <span className="span-note">{listed(marks.map(({ name }) => name))}</span>
    </li>
  );
}

/** The last ones, which say where things stand. */
function listed(names: readonly string[]): string {
  const shown = names.slice(-LISTED_MAX);
  return `${shown.length < names.length ? "…, " : ""}${shown.join(shown.some((name) => name.includes(",")) ? "; " : ", ")}`;
}

function Note({ span }: { readonly span: Span }): ReactNode {
  const notes = [
    span.firstWord === null ? null : `First word after ${duration(span.firstWord - span.from)}.`,
    span.trouble,
    span.isRetracted ? "Its text was retracted." : null,
  ].filter((note) => note !== null);
  return notes.length === 0 ? null : <span className="span-note">{notes.join(" ")}</span>;
}
