/** What a generation did and how long each step took, read from its events. */

import { isEnd } from "@outlast/client";
import type { OutlastEvent } from "@outlast/client";
import { sentence } from "../shell/sentence";
import { AgentSpans } from "./agent-spans";
import type { Lane } from "./agent-spans";
import { newSpan } from "./spans-of-time";
import type { Draft, Span, SpanKind } from "./spans-of-time";

export interface Timeline {
  readonly start: number;
  readonly end: number;
  readonly spans: readonly Span[];
  /** The sandbox and its checkpoints, on the same scale. */
  readonly lanes: readonly Lane[];
  /** Model answers, where the server runs tools. */
  readonly rounds: number;
  readonly attempts: number;
  readonly retractions: number;
  readonly chunks: number;
  readonly characters: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** From the start to the first text. */
  readonly firstWordMs: number | null;
}

/** `now` is the end of a generation that still runs; null for one that has ended. */
export function timelineOf(events: readonly OutlastEvent[], now: number | null = null): Timeline {
  const reader = new Reader();
  for (const event of events) reader.take(event);
  return reader.finish(events, now ?? 0);
}

class Reader {
  readonly #spans: Draft[] = [];
  readonly #agent = new AgentSpans();
  #round = 0;
  #open: Draft | null = null;
  #retractions = 0;
  #chunks = 0;
  #characters = 0;
  #inputTokens = 0;
  #outputTokens = 0;
  #firstWord: number | null = null;

  take(event: OutlastEvent): void {
    const at = Date.parse(event.ts);
    const span = this.#agent.take(event, at);
    if (span !== null) this.#spans.push(span);
    if (isEnd(event)) this.#agent.close(at);
    switch (event.type) {
      case "generation.queued":
        return this.#begin("queued", "Queued", at);
      case "chat.started":
        return this.#start(event.payload, at);
      case "round.ended":
        return this.#close(at);
      case "chat.delta":
      case "thinking.delta":
        return this.#say(event.payload.text, event.payload.chunks ?? 1, at);
      case "usage":
        this.#inputTokens += event.payload.inputTokens;
        this.#outputTokens += event.payload.outputTokens;
        return;
      case "attempt.retracted":
        this.#retractions += 1;
        return this.#retract(event.payload.reason, at);
      case "retry.scheduled":
        this.#fail(event.payload.reason);
        return this.#begin("wait", "Waiting to retry", at);
      case "chat.interrupted":
        this.#fail(event.payload.reason);
        return this.#begin("interrupted", "Interrupted, waiting for a person", at);
      case "chat.error":
        this.#fail(event.payload.errorMessage);
        return this.#close(at);
      case "chat.cancelled":
        this.#fail(`cancelled: ${event.payload.reason}`);
        return this.#close(at);
      case "chat.resumed":
      case "chat.done":
        return this.#close(at);
      default:
        return;
    }
  }

  finish(events: readonly OutlastEvent[], now: number): Timeline {
    const start = Date.parse(events[0]?.ts ?? "") || 0;
    const end = Math.max(start, Date.parse(events.at(-1)?.ts ?? "") || 0, start === 0 ? 0 : now);
    return {
      start,
      end,
      // A wait that took no time is not worth a bar.
      spans: this.#spans.filter(({ kind, from, to }) => kind !== "queued" || to === null || to - from > 5),
      lanes: this.#agent.lanes(),
      rounds: this.#round,
      attempts: this.#spans.filter(({ kind }) => kind === "attempt").length,
      retractions: this.#retractions,
      chunks: this.#chunks,
      characters: this.#characters,
      inputTokens: this.#inputTokens,
      outputTokens: this.#outputTokens,
      firstWordMs: this.#firstWord === null ? null : this.#firstWord - start,
    };
  }

  /** An agent's answers are counted in rounds. Another attempt at the same round says so. */
  #start({ attempt, round = 0 }: { readonly attempt: number; readonly round?: number }, at: number): void {
    const isAgain = round > 0 && round === this.#round;
    this.#round = round;
    const name = round === 0 ? `Attempt ${attempt}` : `Round ${round}${isAgain ? " again" : ""}`;
    this.#begin("attempt", name, at);
  }

  #begin(kind: SpanKind, name: string, at: number): void {
    this.#close(at);
    this.#open = newSpan(kind, name, at);
    this.#spans.push(this.#open);
  }

  #close(at: number): void {
    if (this.#open !== null) this.#open.to ??= at;
    this.#open = null;
  }

  #fail(reason: string): void {
    const attempt = this.#open ?? this.#spans.findLast(({ kind }) => kind === "attempt");
    if (attempt?.kind === "attempt") attempt.trouble ??= sentence(reason);
  }

  /** The retracted attempt may have ended long before, with the server that ran it. */
  #retract(reason: string, at: number): void {
    const attempt = this.#spans.findLast(({ kind }) => kind === "attempt");
    if (attempt === undefined) return;
    attempt.isRetracted = true;
    attempt.trouble ??= sentence(reason);
    if (this.#open === attempt) this.#close(at);
  }

  #say(text: string, chunks: number, at: number): void {
    this.#chunks += chunks;
    this.#characters += text.length;
    this.#firstWord ??= at;
    if (this.#open !== null) this.#open.firstWord ??= at;
  }
}

/** The number of chunks in each of `bins` equal intervals. */
export function rate(
  events: readonly OutlastEvent[],
  { start, end }: Timeline,
  bins: number,
): readonly number[] {
  const counts = new Array<number>(bins).fill(0);
  const width = Math.max(1, end - start);
  for (const event of events) {
    if (event.type !== "chat.delta" && event.type !== "thinking.delta") continue;
    const place = Math.min(bins - 1, Math.floor(((Date.parse(event.ts) - start) / width) * bins));
    counts[place] = (counts[place] ?? 0) + (event.payload.chunks ?? 1);
  }
  return counts;
}
