/** Attempts and waits as bars on one time scale. */

import type { CSSProperties, ReactNode } from "react";
import { duration } from "../shell/duration";
import type { Span, Timeline } from "./timeline";

export interface SpansProps {
  readonly timeline: Timeline;
  /** The time that the replay is at; null at the end. */
  readonly cursor: number | null;
}

export function Spans({ timeline, cursor }: SpansProps): ReactNode {
  const { start, end, spans } = timeline;
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
    </ol>
  );
}

function Note({ span }: { readonly span: Span }): ReactNode {
  const notes = [
    span.firstWord === null ? null : `First word after ${duration(span.firstWord - span.from)}.`,
    span.trouble,
    span.isRetracted ? "Its text was retracted." : null,
  ].filter((note) => note !== null);
  return notes.length === 0 ? null : <span className="span-note">{notes.join(" ")}</span>;
}
