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

describe("the timeline of an agent", () => {
  const call = { toolUseId: "a", toolName: "bash", toolInput: { command: "sh  test.sh" } };
  const agent = [
    event(0, "chat.started", { attempt: 1, model: "m", round: 1 }),
    event(100, "tool.start", { ...call, messageId: "t" }),
    event(200, "round.ended", { round: 1 }),
    event(200, "approval.requested", call),
    event(300, "sandbox.changed", { sandboxId: "s", state: "created", reason: "" }),
    event(400, "sandbox.changed", { sandboxId: "s", state: "paused", reason: "" }),
    event(900, "approval.resolved", { toolUseId: "a", decision: "approve", by: "ann" }),
    event(950, "sandbox.changed", { sandboxId: "s", state: "resumed", reason: "" }),
    event(1_000, "tool.began", { toolUseId: "a", executionId: "e" }),
    event(1_500, "tool.end", { messageId: "t", toolUseId: "a", result: "no", isError: true, exitCode: 2 }),
    event(1_600, "checkpoint.taken", { checkpointId: "cp", files: 2, bytes: 1_426 }),
    event(1_700, "chat.started", { attempt: 2, model: "m", round: 2 }),
    event(2_000, "chat.done", { finishReason: "stop" }),
  ];

  it("has bars for rounds, tools and waits for people", () => {
    const { spans, rounds } = timelineOf(agent);
    expect(rounds).toBe(2);
    expect(
      spans.map(({ kind, name, from, to, trouble }) => [
        kind,
        name,
        from - START,
        (to ?? 0) - START,
        trouble,
      ]),
    ).toEqual([
      ["attempt", "Round 1", 0, 200, null],
      ["person", "Decision: bash: sh test.sh", 200, 900, null],
      ["tool", "bash: sh test.sh", 1_000, 1_500, "Exit code 2."],
      ["attempt", "Round 2", 1_700, 2_000, null],
    ]);
  });

  it("has a line for the sandbox and one for its checkpoints", () => {
    const [sandbox, checkpoints] = timelineOf(agent).lanes;
    expect(
      sandbox?.marks.map(({ name, tone, from, to }) => [name, tone, from - START, to && to - START]),
    ).toEqual([
      ["created", "live", 300, 400],
      ["paused", "waits", 400, 950],
      ["resumed", "live", 950, null],
    ]);
    expect(checkpoints?.marks.map(({ name }) => name)).toEqual(["2 files, 1,426 bytes"]);
  });

  it("ends what was open with the generation", () => {
    const cut = [...agent.slice(0, 9), event(1_200, "chat.cancelled", { reason: "user" })];
    expect(timelineOf(cut).spans.at(-1)).toMatchObject({ kind: "tool", to: START + 1_200 });
  });
});
