import { expect, it, vi } from "vitest";
import { applyAll } from "../src/fold.js";
import type { OutlastEvent } from "../src/index.js";
import { collect } from "../src/tool-outputs.js";
import { scene, settled, VIEW } from "./fakes.js";

const GENERATION = "gen_1";

function event(seq: number, type: string, payload: object): OutlastEvent {
  const ts = new Date(Date.parse("2026-01-01T00:00:00.000Z") + seq * 1_000).toISOString();
  return { seq, ts, generationId: GENERATION, requestId: "r", type, payload } as unknown as OutlastEvent;
}

const output = (seq: number, text: string, stream = "stdout"): OutlastEvent =>
  event(seq, "tool.output", { toolUseId: "call_1", stream, text });

const BEGUN = [
  event(1, "generation.queued", { messageId: "m", model: "default", digest: "d" }),
  event(2, "chat.started", { model: "default", attempt: 1, round: 1 }),
  event(3, "tool.start", { messageId: "t", toolUseId: "call_1", toolName: "bash", toolInput: {} }),
  event(4, "tool.began", { toolUseId: "call_1", executionId: "exec_1" }),
];
const END = { messageId: "t", toolUseId: "call_1", result: "one two", isError: false, exitCode: 0 };

it("what a tool wrote is kept by stream, in order, until its result is there", () => {
  const written = collect({}, [
    output(5, "one "),
    output(6, "two"),
    output(7, "oh", "stderr"),
    output(8, "!"),
  ]);
  expect(written).toEqual({
    call_1: [
      { stream: "stdout", text: "one two" },
      { stream: "stderr", text: "oh" },
      { stream: "stdout", text: "!" },
    ],
  });
  expect(collect(written, [event(9, "tool.end", END)])).toEqual({});
  expect(collect(written, [event(9, "chat.cancelled", { reason: "user" })])).toBe(written);
});

it("o6_what_a_tool_wrote_has_a_maximum_size_and_the_newest_is_kept", () => {
  let written = {};
  for (let seq = 5; seq < 1_000; seq += 1) written = collect(written, [output(seq, "x".repeat(5_000))]);
  written = collect(written, [output(1_000, "the end")]);
  const text = Object.values<readonly { text: string }[]>(written)
    .flat()
    .map(({ text }) => text)
    .join("");
  expect(text.length).toBeLessThanOrEqual(100 * 10_000);
  expect(text.endsWith("the end")).toBe(true);
});

it("the part of a result says how the tool ended and how long it ran", () => {
  const view = applyAll(VIEW, [...BEGUN, event(9, "tool.end", END)]);
  expect(view.messages.at(-1)?.parts.at(-1)).toEqual({
    type: "tool_result",
    toolUseId: "call_1",
    content: "one two",
    isError: false,
    exitCode: 0,
    durationMs: 5_000,
  });
});

it("a page that opens while a tool runs shows what was written before, once, and then what follows", async () => {
  const asked: string[] = [];
  let answer = (_: unknown): void => {};
  const pages = [
    { data: [BEGUN[3], output(5, "one ")], nextAfter: 5, ended: false },
    { data: [output(6, "two "), output(7, "three ")], nextAfter: 7, ended: false },
  ];
  const { client, transport } = scene(async ({ path, search }) => {
    asked.push(`${path}?${search}`);
    if (asked.length === 1) await new Promise((resolve) => (answer = resolve));
    return pages[asked.length - 1];
  });
  const conversation = client.conversation("conv_1");
  conversation.subscribe(() => {});
  await settled();
  transport.show(applyAll(VIEW, [...BEGUN, output(5, ""), output(6, "")]));
  // These arrive while the page reads what was before them. The second page has the first of them too.
  transport.say(output(7, "three "), output(8, "four"));
  await settled();
  answer(null);
  await vi.waitFor(() => expect(conversation.snapshot().toolOutputs).not.toEqual({}));
  expect(asked).toEqual([
    "/v1/generations/gen_1/events?after=3&format=json",
    "/v1/generations/gen_1/events?after=5&format=json",
  ]);
  expect(conversation.snapshot().toolOutputs).toEqual({
    call_1: [{ stream: "stdout", text: "one two three four" }],
  });
});

it("a page that cannot read what was before shows what follows", async () => {
  const { client, transport } = scene();
  const conversation = client.conversation("conv_1");
  conversation.subscribe(() => {});
  await settled();
  transport.show(applyAll(VIEW, [...BEGUN, output(5, "")]));
  transport.say(output(6, "later"));
  await vi.waitFor(() => expect(conversation.snapshot().toolOutputs).not.toEqual({}));
  expect(conversation.snapshot().toolOutputs).toEqual({ call_1: [{ stream: "stdout", text: "later" }] });
});
