import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { parseEvent } from "../src/event.js";
import { apply, applyAll, emptyView, partsOf, textOf } from "../src/index.js";
import type { OutlastEvent, View } from "../src/index.js";

const folder = new URL("../../fixtures/", import.meta.url);
/** `first/` has the logs of the first version, which every later one must still read. */
const first = logsIn("first/");
const names = [...logsIn(""), ...first];

function logsIn(under: string): string[] {
  return readdirSync(new URL(under || ".", folder))
    .filter((name) => name.endsWith(".jsonl"))
    .map((name) => under + name.replace(".jsonl", ""));
}

function log(name: string): OutlastEvent[] {
  const lines = readFileSync(new URL(`${name}.jsonl`, folder), "utf8")
    .split("\n")
    .filter(Boolean);
  return lines.map((line) => parseEvent(line)!);
}

/** The server's view before the first line and after every line. */
function serverViews(name: string): View[] {
  const changes: Partial<View>[] = JSON.parse(readFileSync(new URL(`${name}.views.json`, folder), "utf8"));
  const views = [beginning()];
  for (const change of changes) views.push({ ...views.at(-1)!, ...change });
  return views;
}

const beginning = (): View => emptyView("conv_fixture", "2026-01-01T00:00:00.000Z");
const throughJson = (view: View): View => JSON.parse(JSON.stringify(view));

describe("every fixture folds to the view that the server has", () => {
  it("finds the fixtures, and those of the first version", () => {
    expect(first.length).toBeGreaterThan(20);
    expect(names.length - first.length).toBeGreaterThan(20);
  });

  it.each(names)("%s, from the beginning and from the view after every line", (name) => {
    const expected: View = JSON.parse(readFileSync(new URL(`${name}.view.json`, folder), "utf8"));
    const events = log(name);
    for (let cut = 0; cut <= events.length; cut += 1) {
      const before = throughJson(applyAll(beginning(), events.slice(0, cut)));
      const snapshot = { type: "snapshot", payload: before, seq: cut } as OutlastEvent;
      const after = applyAll(apply(beginning(), snapshot), events.slice(cut));
      expect(throughJson(after), `cut after line ${cut}`).toEqual(expected);
    }
  });

  it.each(logsIn(""))("%s, at every line and from the server's view at any earlier one", (name) => {
    const events = log(name);
    const views = serverViews(name);
    for (let start = 0; start <= events.length; start += 1) {
      const snapshot = { type: "snapshot", payload: views[start], seq: start } as OutlastEvent;
      let view = apply(beginning(), snapshot);
      for (let line = start + 1; line <= events.length; line += 1) {
        view = apply(view, events[line - 1]!);
        expect(throughJson(view), `from ${start} to ${line}`).toEqual(views[line]);
      }
    }
  });
});

const envelope = { ts: "2026-01-02T00:00:00.000Z", generationId: "gen_1", requestId: "r" };
const delta = (seq: number, text: string): OutlastEvent => ({
  ...envelope,
  seq,
  type: "chat.delta",
  payload: { messageId: "answer", text },
});

function answering(): View {
  return applyAll(beginning(), [
    { ...envelope, seq: 1, type: "generation.queued", payload: { messageId: "q", model: "m", digest: "d" } },
    { ...envelope, seq: 2, type: "chat.started", payload: { model: "m", attempt: 1 } },
    { ...envelope, seq: 3, type: "assistant.segment.started", payload: { messageId: "answer" } },
  ]);
}

function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(frozen);
  }
  return value;
}

describe("the fold", () => {
  it.each(names)("changes nothing in place: %s", (name) => {
    let view = frozen(beginning());
    for (const event of log(name)) view = frozen(apply(view, frozen(event)));
  });

  it("keeps the identity of what an event does not touch", () => {
    const before = answering();
    const after = apply(before, delta(4, "Hello"));
    expect(after.messages).toBe(before.messages);
    expect(after.activeRun).toBe(before.activeRun);
    expect(after.queue).toBe(before.queue);
    expect(after.overlays).not.toBe(before.overlays);
    const closed = apply(after, {
      ...envelope,
      seq: 5,
      type: "chat.done",
      payload: { finishReason: "stop" },
    });
    expect(closed.messages[0]).not.toBe(after.messages[0]);
    expect(closed.messages[0]).toMatchObject({ content: "Hello", status: "complete" });
  });

  it("shows the text of a message before it is closed", () => {
    const view = apply(answering(), delta(4, "Hel"));
    const message = view.messages[0]!;
    expect(message.content).toBe("");
    expect(textOf(view, message)).toBe("Hel");
    expect(partsOf(view, message)).toEqual([{ type: "text", text: "Hel" }]);
  });

  it("ignores an unknown event, but not its position", () => {
    const before = answering();
    const strange = { ...envelope, seq: 4, type: "moon.risen", payload: {} } as unknown as OutlastEvent;
    const after = apply(before, strange);
    expect(after.lastSeq).toBe(4);
    expect({ ...after, lastSeq: 3, conversation: before.conversation }).toEqual(before);
  });

  it("sets a title, keeps it when only metadata changes, and clears it", () => {
    const update = (seq: number, payload: object): OutlastEvent =>
      ({ ...envelope, seq, type: "conversation.updated", payload }) as OutlastEvent;
    let view = apply(answering(), update(4, { title: "Sky" }));
    expect(view.conversation.title).toBe("Sky");
    view = apply(view, update(5, { metadata: { tab: 1 } }));
    expect(view.conversation).toMatchObject({ title: "Sky", metadata: { tab: 1 } });
    view = apply(view, update(6, { title: null }));
    expect(view.conversation).toMatchObject({ title: null, metadata: { tab: 1 } });
    expect(apply(view, update(7, { metadata: null })).conversation.metadata).toBeNull();
  });

  it("tolerates tool events, and events of unknown messages and generations", () => {
    const calls: OutlastEvent[] = [
      { ...envelope, seq: 4, type: "usage", payload: { inputTokens: 1, outputTokens: 1 } },
      { ...envelope, seq: 5, type: "tool.output", payload: { toolUseId: "t", stream: "stdout", text: "hi" } },
      {
        ...envelope,
        seq: 6,
        type: "tool.end",
        payload: { messageId: "m", toolUseId: "t", result: "hi", isError: false },
      },
      {
        ...envelope,
        seq: 7,
        type: "approval.requested",
        payload: { toolUseId: "t", toolName: "b", toolInput: 1 },
      },
      {
        ...envelope,
        seq: 8,
        type: "approval.resolved",
        payload: { toolUseId: "t", decision: "deny", by: "me" },
      },
      { ...envelope, seq: 9, type: "chat.resumed", payload: { by: "me" }, generationId: "other" },
      { ...delta(10, "?"), payload: { messageId: "nobody", text: "?" } } as OutlastEvent,
      {
        ...envelope,
        generationId: "other",
        seq: 11,
        type: "chat.interrupted",
        payload: { reason: "", round: 0 },
      },
      {
        ...envelope,
        generationId: "other",
        seq: 12,
        type: "chat.started",
        payload: { model: "m", attempt: 3 },
      },
      { ...envelope, generationId: "other", seq: 13, type: "chat.cancelled", payload: { reason: "user" } },
    ];
    const view = applyAll(answering(), calls);
    expect(view.lastSeq).toBe(13);
    expect(view.activeRun).toEqual(answering().activeRun);
    expect(view.messages).toEqual(answering().messages);
  });

  it("applies thousands of deltas among ten thousand messages without copying them", () => {
    const start = answering();
    const message = { ...start.messages[0]!, id: "old", status: "complete" as const };
    const many = { ...start, messages: [...Array<typeof message>(10_000).fill(message), ...start.messages] };
    let view: View = many;
    for (let seq = 4; seq < 4_004; seq += 1)
      view = apply(view, delta(seq, "fifty characters of an answer that goes on and on "));
    expect(view.messages).toBe(many.messages);
    expect(view.overlays["answer"]).toHaveLength(200_000);
  });
});
