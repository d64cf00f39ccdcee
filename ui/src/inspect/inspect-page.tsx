/** How an answer was generated: its log as a timeline, as figures, and event by event. */

import type { Generation } from "@outlast/client";
import { useEffect, useMemo, useState } from "react";
import type { ReactNode } from "react";
import { Markdown } from "../markdown/markdown";
import { CopyButton } from "../shell/copy-button";
import { Icon } from "../shell/icon";
import { Link } from "../shell/link";
import { MenuButton } from "../shell/menu-button";
import { sentence } from "../shell/sentence";
import { curlEvents, curlGeneration } from "./curl";
import { EventPanes } from "./event-panes";
import { Figures } from "./figures";
import { RateChart } from "./rate-chart";
import { ReplayBar } from "./replay-bar";
import { useReplay } from "./replay";
import { Spans } from "./spans";
import { SubAgents } from "./sub-agents";
import { timelineOf } from "./timeline";
import { TypeFilter } from "./type-filter";
import { answerIn, useAnswer } from "./use-answer";
import { useEvents } from "./use-events";
import type { Log } from "./use-events";
import { useNow } from "../shell/use-now";
import { useGenerationDocument } from "./use-generation-document";
import "./inspect.css";

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
  const listed = useMemo(
    () => events.slice(0, replay.count).filter(({ type }) => !hidden.has(type)),
    [events, replay.count, hidden],
  );
  const last = replay.count < size ? events[replay.count - 1] : undefined;
  const cursor = last === undefined ? null : Date.parse(last.ts);
  useEffect(() => {
    document.title = "Inspect · Outlast";
  }, []);

  return (
    <section className="inspect" aria-label="Inspect a generation">
      <Head generationId={generationId} generation={generation} isOver={log.isOver} onMenu={onMenu} />
      <div className="inspect-body" tabIndex={0} role="region" aria-label="Details">
        <Notes log={log} />
        <Figures generation={generation} timeline={timeline} />
        {timeline.chunks > 0 && <RateChart events={events} timeline={timeline} cursor={cursor} />}
        <Spans timeline={timeline} cursor={cursor} />
        <SubAgents events={events} size={size} />
        <ReplayBar replay={replay} />
        <Answer
          text={log.snapshot === null ? answer : answerIn(log.snapshot)}
          isStreaming={!log.isOver || cursor !== null}
        />
        <TypeFilter events={events} hidden={hidden} onChange={setHidden} />
        <EventPanes events={listed} start={timeline.start} />
      </div>
    </section>
  );
}

interface HeadProps {
  readonly generationId: string;
  readonly generation: Generation | null;
  readonly isOver: boolean;
  readonly onMenu: () => void;
}

function Head({ generationId, generation, isOver, onMenu }: HeadProps): ReactNode {
  const status = generation?.status ?? (isOver ? "" : "running");
  return (
    <header className="page-head">
      <MenuButton onClick={onMenu} />
      {generation !== null && (
        <Link
          to={{ type: "conversation", id: generation.conversationId }}
          className="icon-button"
          label="Back to the conversation"
        >
          <Icon name="back" />
        </Link>
      )}
      <h1>Inspect answer</h1>
      {status !== "" && <span className={`badge is-${status}`}>{status.replace("_", " ")}</span>}
      <span className="curls">
        <CopyButton
          text={curlEvents(location.origin, generationId)}
          label="Copy a curl command for the events"
          words="Copy curl: events"
        />
        <CopyButton
          text={curlGeneration(location.origin, generationId)}
          label="Copy a curl command for the generation"
          words="Copy curl: generation"
        />
      </span>
    </header>
  );
}

function Notes({ log }: { readonly log: Log }): ReactNode {
  if (log.error !== null)
    return (
      <p className="trouble" role="alert">
        Could not load this generation. {sentence(log.error.detail)}
      </p>
    );
  if (log.snapshot === null) return null;
  return <p className="turn-note">The events of this generation are no longer stored. Its messages are.</p>;
}

interface AnswerProps {
  readonly text: string;
  readonly isStreaming: boolean;
}

function Answer({ text, isStreaming }: AnswerProps): ReactNode {
  if (text === "") return null;
  return (
    <details className="inspect-answer" open>
      <summary>
        <Icon name="chevron" />
        Answer at this point
      </summary>
      <Markdown text={text} isStreaming={isStreaming} />
    </details>
  );
}
