/** How an answer was made: its whole log, as a timeline, as figures, and event by event. */

import type { OutlastEvent } from "@outlast/client";
import { useEffect, useMemo, useRef, useState } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Markdown } from "../markdown/markdown";
import { CopyButton } from "../shell/copy-button";
import { Icon } from "../shell/icon";
import { Link } from "../shell/link";
import { pretty } from "../shell/pretty";
import { sentence } from "../shell/sentence";
import { curlEvents, curlGeneration } from "./curl";
import { EventList } from "./event-list";
import { Figures } from "./figures";
import { RateChart } from "./rate-chart";
import { ReplayBar } from "./replay-bar";
import { useReplay } from "./replay";
import { Spans } from "./spans";
import { timelineOf } from "./timeline";
import { TypeFilter } from "./type-filter";
import { useAnswer } from "./use-answer";
import { useEvents } from "./use-events";
import { useNow } from "./use-now";
import { useGenerationDocument } from "./use-generation-document";
import "./inspect.css";
import "./events.css";

export interface InspectPageProps {
  readonly generationId: string;
  readonly onMenu: () => void;
}

export function InspectPage({ generationId, onMenu }: InspectPageProps): ReactNode {
  const log = useEvents(generationId);
  const generation = useGenerationDocument(generationId, log.isOver);
  const { events, size } = log;
  const now = useNow(!log.isOver);
  const timeline = useMemo(() => timelineOf(events.slice(0, size), now), [events, size, now]);
  const replay = useReplay(events, size);
  const answer = useAnswer(events, replay.count);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(() => new Set());
  const [selected, setSelected] = useState<OutlastEvent | null>(null);
  const panes = useRef<HTMLDivElement>(null);
  const listed = useMemo(
    () => events.slice(0, replay.count).filter(({ type }) => !hidden.has(type)),
    [events, replay.count, hidden],
  );
  const last = replay.count < size ? events[replay.count - 1] : undefined;
  const cursor = last === undefined ? null : Date.parse(last.ts);
  const status = generation?.status ?? (log.isOver ? "" : "running");

  useEffect(() => {
    document.title = "Inspect · Outlast";
  }, []);

  return (
    <section className="inspect" aria-label="Inspect a generation">
      <header className="page-head">
        <button
          type="button"
          className="icon-button only-narrow"
          aria-label="Show conversations"
          onClick={onMenu}
        >
          <Icon name="menu" />
        </button>
        {generation !== null && (
          <Link
            to={{ type: "conversation", id: generation.conversationId }}
            className="icon-button"
            label="Back to the conversation"
          >
            <Icon name="back" />
          </Link>
        )}
        <h1>How this answer was made</h1>
        {status !== "" && <span className={`badge is-${status}`}>{status.replace("_", " ")}</span>}
        <span className="curls">
          <CopyButton
            text={curlEvents(generationId)}
            label="Copy the events as curl"
            words="Copy curl: events"
          />
          <CopyButton
            text={curlGeneration(generationId)}
            label="Copy the generation as curl"
            words="Copy curl: generation"
          />
        </span>
      </header>
      <div className="inspect-body" tabIndex={0} role="region" aria-label="Details">
        {log.error !== null && (
          <p className="trouble" role="alert">
            This generation cannot be shown. {sentence(log.error.detail)}
          </p>
        )}
        {log.isForgotten && <p className="turn-note">The events of this generation are no longer kept.</p>}
        <Figures generation={generation} timeline={timeline} />
        {timeline.pieces > 0 && <RateChart events={events} timeline={timeline} cursor={cursor} />}
        <Spans timeline={timeline} cursor={cursor} />
        <ReplayBar replay={replay} />
        {answer !== "" && <Answer text={answer} isStreaming={!log.isOver || cursor !== null} />}
        <TypeFilter events={events} hidden={hidden} onChange={setHidden} />
        <div ref={panes} className={selected === null ? "event-panes" : "event-panes is-split"}>
          <EventList events={listed} start={timeline.start} selected={selected} onSelect={setSelected} />
          {selected !== null && (
            <aside className="event-json" aria-label="The event">
              <div className="event-json-head">
                <span>Event {selected.seq}</span>
                <CopyButton text={JSON.stringify(selected)} label="Copy event" />
                <button
                  type="button"
                  className="icon-button"
                  aria-label="Close event"
                  onClick={() => {
                    setSelected(null);
                    panes.current?.querySelector<HTMLElement>("[role=listbox]")?.focus();
                  }}
                >
                  <Icon name="close" />
                </button>
              </div>
              <pre tabIndex={0} aria-label="The event as JSON">
                {revealBidi(pretty(selected))}
              </pre>
            </aside>
          )}
        </div>
      </div>
    </section>
  );
}

/** What the reader saw then. */
function Answer({ text, isStreaming }: { readonly text: string; readonly isStreaming: boolean }): ReactNode {
  return (
    <details className="inspect-answer" open>
      <summary>
        <Icon name="chevron" />
        The answer at this moment
      </summary>
      <Markdown text={text} isStreaming={isStreaming} />
    </details>
  );
}
