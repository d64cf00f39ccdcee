import type { OutlastEvent } from "@outlast/client";
import { describe, expect, it } from "vitest";
import { countAt, replayTimes } from "../src/inspect/replay";
import { rate, timelineOf } from "../src/inspect/timeline";

const START = Date.parse("2026-01-01T00:00:00.000Z");
let seq = 0;
const event = (ms: number, type: string, payload: object): OutlastEvent =>
  ({
    seq: (seq += 1),
    ts: new Date(START + ms).toISOString(),
    generationId: "g",
    requestId: "r",
    type,
    payload,
  }) as unknown as OutlastEvent;

const events = [
  event(0, "generation.queued", { model: "default" }),
  event(100, "chat.started", { attempt: 1, model: "default" }),
  event(300, "chat.delta", { messageId: "m", text: "abc", chunks: 2 }),
  event(400, "attempt.retracted", { attempt: 1, messageIds: ["m"], reason: "it broke" }),
  event(400, "retry.scheduled", { attempt: 2, delayMs: 600, reason: "it broke" }),
  event(1_000, "chat.started", { attempt: 2, model: "default" }),
  event(1_500, "chat.delta", { messageId: "n", text: "abcd" }),
  event(1_600, "usage", { inputTokens: 3, outputTokens: 4 }),
  event(61_600, "chat.done", { finishReason: "stop" }),
];

describe("a timeline", () => {
  it("shows each step and how long it took", () => {
    const timeline = timelineOf(events);
    expect(timeline).toMatchObject({
      attempts: 2,
      retractions: 1,
      chunks: 3,
      characters: 7,
      firstWordMs: 300,
    });
    expect(timeline).toMatchObject({ inputTokens: 3, outputTokens: 4, end: START + 61_600 });
    expect(timeline.spans.map(({ kind, from, to }) => [kind, from - START, (to ?? 0) - START])).toEqual([
      ["queued", 0, 100],
      ["attempt", 100, 400],
      ["wait", 400, 1_000],
      ["attempt", 1_000, 61_600],
    ]);
    expect(timeline.spans[1]).toMatchObject({
      isRetracted: true,
      trouble: "It broke.",
      firstWord: START + 300,
    });
  });

  it("leaves the current step open", () => {
    const timeline = timelineOf(events.slice(0, 7), START + 9_000);
    expect(timeline.spans.at(-1)).toMatchObject({ kind: "attempt", to: null });
    expect(timeline.end).toBe(START + 9_000);
  });

  it("counts chunks over time", () => {
    const counts = rate(events, timelineOf(events), 10);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(3);
    expect(counts[0]).toBe(3);
  });
});

describe("a replay", () => {
  it("shortens long waits and keeps the others", () => {
    const times = replayTimes(events);
    expect(times).toEqual([0, 100, 300, 400, 400, 1_000, 1_500, 1_600, 3_600]);
    expect(countAt(times, 0)).toBe(1);
    expect(countAt(times, 400)).toBe(5);
    expect(countAt(times, 9_999)).toBe(9);
  });
});
