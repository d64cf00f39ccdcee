/** The events, one line each. There may be tens of thousands, so only visible lines are in the page. */

import type { OutlastEvent } from "@outlast/client";
import { useRef, useState } from "react";
import type { KeyboardEvent, ReactNode } from "react";
import { duration } from "../shell/duration";
import { summaryOf } from "./summary";

/** The height of a line in pixels, as in `events.css`. */
const ROW = 30;
/** Lines rendered beyond each edge, so that scrolling shows no gaps. */
const EXTRA = 8;

export interface EventListProps {
  readonly events: readonly OutlastEvent[];
  readonly start: number;
  readonly selected: OutlastEvent | null;
  readonly onSelect: (event: OutlastEvent) => void;
}

export function EventList({ events, start, selected, onSelect }: EventListProps): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const height = box.current?.clientHeight ?? 600;
  const first = Math.max(0, Math.min(events.length, Math.floor(top / ROW)) - EXTRA);
  const shown = events.slice(first, first + Math.ceil(height / ROW) + 2 * EXTRA);
  const press = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const place = Math.min(events.length - 1, Math.max(0, (selected ? events.indexOf(selected) : -1) + step));
    const next = events[place];
    if (next === undefined) return;
    onSelect(next);
    show(box.current, place);
  };
  return (
    <div
      ref={box}
      className="events"
      role="listbox"
      tabIndex={0}
      aria-label="Events"
      aria-activedescendant={selected === null ? undefined : idOf(selected)}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={press}
    >
      <div className="events-all" style={{ height: events.length * ROW }} role="presentation">
        {shown.map((event, place) => (
          <div
            key={event.seq}
            id={idOf(event)}
            role="option"
            aria-selected={event === selected}
            className={`event is-${kindOf(event)}`}
            style={{ top: (first + place) * ROW }}
            onClick={() => onSelect(event)}
          >
            <span className="event-seq">{event.seq}</span>
            <span className="event-time">+{duration(Date.parse(event.ts) - start)}</span>
            <span className="event-type">{event.type}</span>
            <span className="event-words">
              <bdi>{summaryOf(event)}</bdi>
            </span>
          </div>
        ))}
      </div>
    </div>
  );
}

function idOf({ seq }: OutlastEvent): string {
  return `event-${seq}`;
}

function show(box: HTMLDivElement | null, place: number): void {
  if (box === null) return;
  const top = place * ROW;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
}

function kindOf({ type }: OutlastEvent): "words" | "trouble" | "step" {
  if (type.endsWith(".delta")) return "words";
  const trouble = [
    "attempt.retracted",
    "retry.scheduled",
    "chat.interrupted",
    "chat.error",
    "chat.cancelled",
  ];
  return trouble.includes(type) ? "trouble" : "step";
}
