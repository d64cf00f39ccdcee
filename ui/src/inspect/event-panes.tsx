/** The list of events, with the selected one beside it. */

import type { OutlastEvent } from "@outlast/client";
import { useRef, useState } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { CopyButton } from "../shell/copy-button";
import { Icon } from "../shell/icon";
import { pretty } from "../shell/pretty";
import { EventList } from "./event-list";
import "./events.css";

export interface EventPanesProps {
  readonly events: readonly OutlastEvent[];
  /** When the generation began, in milliseconds since the epoch. */
  readonly start: number;
}

export function EventPanes({ events, start }: EventPanesProps): ReactNode {
  const [selected, setSelected] = useState<OutlastEvent | null>(null);
  const panes = useRef<HTMLDivElement>(null);
  const close = (): void => {
    setSelected(null);
    panes.current?.querySelector<HTMLElement>("[role=listbox]")?.focus();
  };
  return (
    <div ref={panes} className={selected === null ? "event-panes" : "event-panes is-split"}>
      <EventList events={events} start={start} selected={selected} onSelect={setSelected} />
      {selected !== null && (
        <aside className="event-json" aria-label="Selected event">
          <div className="event-json-head">
            <span>Event {selected.seq}</span>
            <CopyButton text={JSON.stringify(selected)} label="Copy event" />
            <button type="button" className="icon-button" aria-label="Close event" onClick={close}>
              <Icon name="close" />
            </button>
          </div>
          <pre tabIndex={0} aria-label="Event as JSON">
            {revealBidi(pretty(selected))}
          </pre>
        </aside>
      )}
    </div>
  );
}
