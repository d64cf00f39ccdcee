import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { OutlastEvent, View } from "../src/index.js";
import { RELEASE_GRACE_MS } from "../src/store.js";
import { HIDDEN_GRACE_MS, PEEK_MS } from "../src/machine.js";
import { applyAll } from "../src/fold.js";
import { answering, exchange, OFFERS, problem, scene, settled, started, tabs, VIEW } from "./fakes.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("a conversation", () => {
  it("is the same store for everyone, with one connection", async () => {
    const { client, transport } = scene();
    const conversation = client.conversation("conv_1");
    expect(client.conversation("conv_1")).toBe(conversation);
    conversation.subscribe(() => {});
    conversation.subscribe(() => {});
    await settled();
    expect(transport.lines).toHaveLength(1);
    expect(transport.last.target).toEqual({ path: "/v1/conversations/conv_1", after: null });
  });

  it("keeps its connection while one listener replaces another, and closes it after the last", async () => {
    const { client, transport } = scene();
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {})();
    const stop = conversation.subscribe(() => {});
    await settled();
    vi.advanceTimersByTime(RELEASE_GRACE_MS * 2);
    expect(transport.lines).toHaveLength(1);
    expect(transport.openLines).toBe(1);
    stop();
    vi.advanceTimersByTime(RELEASE_GRACE_MS);
    expect(transport.openLines).toBe(0);
    await settled();
    expect(conversation.snapshot().connection).toEqual({ type: "idle" });
  });

  it("that is watched again continues where it was", async () => {
    const { client, transport } = scene();
    const conversation = client.conversation("conv_1");
    const stop = conversation.subscribe(() => {});
    await settled();
    transport.show(applyAll(VIEW, exchange(1, "a", "hello", ["hi"])));
    stop();
    vi.advanceTimersByTime(RELEASE_GRACE_MS);
    conversation.subscribe(() => {});
    await settled();
    expect(transport.lines).toHaveLength(2);
    expect(transport.last.target.after).toBe(7);
    expect(conversation.snapshot().view?.messages).toHaveLength(2);
  });

  it("calls its listeners once for everything that arrives together, and never without a change", async () => {
    const { client, transport } = scene();
    const conversation = client.conversation("conv_1");
    let told = 0;
    conversation.subscribe(() => (told += 1));
    await settled();
    transport.show(VIEW);
    await settled();
    told = 0;
    const before = conversation.snapshot();
    expect(conversation.snapshot()).toBe(before);
    for (const event of exchange(1, "a", "hello", Array<string>(1_000).fill("word "))) transport.say(event);
    expect(conversation.snapshot()).toBe(before);
    await settled();
    expect(told).toBe(1);
    expect(conversation.snapshot().view?.messages[1]?.content).toHaveLength(5_000);
    expect(conversation.snapshot().lastEnd).toMatchObject({ generationId: "gen_of_a", status: "completed" });
  });

  it("never shows a gap or a duplicate, but starts over", async () => {
    const { client, transport } = scene();
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    transport.show(VIEW);
    const events = exchange(1, "a", "hello", ["one ", "two ", "three"]);
    transport.say(...events.slice(0, 5), ...events.slice(6));
    await settled();
    expect(conversation.snapshot().view?.overlays).toEqual({ answer_of_a: "one " });
    expect(conversation.snapshot().connection).toMatchObject({
      type: "waiting",
      reason: "received position 7 after 5",
    });
    expect(transport.openLines).toBe(0);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(transport.last.target.after).toBeNull();
    transport.show(applyAll(VIEW, events));
    await settled();
    expect(conversation.snapshot().view?.messages[1]?.content).toBe("one two three");
  });

  it("ignores a connection that it has given up", async () => {
    const { client, transport } = scene();
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    transport.show(VIEW);
    const old = transport.last;
    transport.lose();
    await vi.advanceTimersByTimeAsync(1_000);
    old.sink.events(exchange(1, "a", "hello", []));
    old.sink.closed({ type: "lost", detail: "late" });
    await settled();
    expect(conversation.snapshot().view?.messages).toEqual([]);
    expect(conversation.snapshot().connection.type).toBe("connecting");
  });

  it("starts over after a lost connection if positions do not survive a crash", async () => {
    const fetch = answering(() => ({ ...OFFERS, durability: "debounce" }));
    const { client, transport } = scene(undefined, { fetch });
    client.conversation("conv_1").subscribe(() => {});
    await settled();
    transport.show(applyAll(VIEW, exchange(1, "a", "hello", ["hi"])));
    transport.lose();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(transport.last.target.after).toBeNull();
  });

  it("of a hidden page closes its connection, except while an answer is generated, and reconnects", async () => {
    const { client, transport, device } = scene();
    client.conversation("conv_1").subscribe(() => {});
    await settled();
    transport.show(VIEW);
    const events = exchange(1, "a", "hello", ["hi"]);
    transport.say(...events.slice(0, 4));
    device.become("hidden");
    await vi.advanceTimersByTimeAsync(HIDDEN_GRACE_MS / 2);
    transport.last.sink.alive();
    await vi.advanceTimersByTimeAsync(HIDDEN_GRACE_MS / 2);
    expect(transport.openLines).toBe(1);
    transport.say(...events.slice(4));
    await vi.advanceTimersByTimeAsync(HIDDEN_GRACE_MS / 2);
    transport.last.sink.alive();
    await vi.advanceTimersByTimeAsync(HIDDEN_GRACE_MS / 2);
    expect(transport.openLines).toBe(0);
    expect(client.conversation("conv_1").snapshot().connection).toMatchObject({
      type: "waiting",
      because: "hidden",
    });
    await vi.advanceTimersByTimeAsync(PEEK_MS);
    expect(transport.lines).toHaveLength(2);
    transport.last.sink.opened();
    await vi.advanceTimersByTimeAsync(HIDDEN_GRACE_MS / 2);
    transport.last.sink.alive();
    await vi.advanceTimersByTimeAsync(HIDDEN_GRACE_MS / 2);
    expect(transport.openLines).toBe(0);
    device.become("visible");
    await settled();
    expect(transport.openLines).toBe(1);
    expect(transport.last.target.after).toBe(7);
  });

  it("of a hidden page always closes its connection if connections are scarce", async () => {
    const { client, transport, device } = scene();
    transport.scarce = true;
    client.conversation("conv_1").subscribe(() => {});
    await settled();
    transport.show(applyAll(VIEW, exchange(1, "a", "hello", ["hi"]).slice(0, 4)));
    device.become("hidden");
    await vi.advanceTimersByTimeAsync(HIDDEN_GRACE_MS / 2);
    transport.last.sink.alive();
    await vi.advanceTimersByTimeAsync(HIDDEN_GRACE_MS / 2);
    expect(transport.openLines).toBe(0);
  });

  it("loads older messages in front, unless a snapshot arrived meanwhile", async () => {
    const all = applyAll(VIEW, [...exchange(1, "a", "first", ["1"]), ...exchange(8, "b", "second", ["2"])]);
    const newest: View = { ...all, messages: all.messages.slice(2), hasMore: true };
    let reading = (): void => {};
    const { client, transport } = scene(({ path }) => {
      expect(path).toBe("/v1/conversations/conv_1/messages");
      reading();
      return { data: all.messages.slice(0, 2), hasMore: false };
    });
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    transport.show(newest);
    const loading = conversation.loadOlder();
    await settled();
    await loading;
    expect(conversation.snapshot().view).toEqual(all);
    transport.say({ ...snapshotOf(newest) });
    reading = () => transport.say(snapshotOf({ ...all, hasMore: false }));
    await conversation.loadOlder();
    expect(conversation.snapshot().view?.messages).toEqual(all.messages);
  });

  it("says why the last generation failed, even if it had no text", async () => {
    const { client, transport } = scene();
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    const document = {
      ...VIEW.conversation,
      generationStatus: "error" as const,
      currentGenerationId: "gen_1",
    };
    const lastEnd = {
      generationId: "gen_1",
      status: "error" as const,
      reason: "upstream_refused",
      errorMessage: "no",
    };
    transport.show({ ...VIEW, conversation: document, lastEnd });
    await settled();
    expect(conversation.snapshot().generation).toMatchObject({
      status: "error",
      errorMessage: "no",
      endReason: "upstream_refused",
    });
  });

  it("says why a run waits, until it continues", async () => {
    const { client, transport } = scene();
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    const events = exchange(1, "a", "hello", []);
    transport.show(applyAll(VIEW, events.slice(0, 3)));
    const retry = { attempt: 2, delayMs: 400, reason: "overloaded" };
    transport.say({ ...events[0]!, seq: 4, type: "retry.scheduled", payload: retry } as OutlastEvent);
    await settled();
    expect(conversation.snapshot().generation?.retry).toMatchObject(retry);
    transport.say({ ...events[2]!, seq: 5, payload: { model: "default", attempt: 2 } } as OutlastEvent);
    await settled();
    expect(conversation.snapshot().generation).toMatchObject({ retry: null, attempt: 2, status: "running" });
  });
});

function snapshotOf(view: View): OutlastEvent {
  return { seq: view.lastSeq, ts: "", generationId: null, requestId: null, type: "snapshot", payload: view };
}

describe("a decision", () => {
  const asked = (toolUseId: string) => ({ toolUseId, toolName: "bash", toolInput: { command: toolUseId } });

  it("i8_a_decision_is_about_the_question_that_was_shown, even if another one waits by then", async () => {
    const decided: unknown[] = [];
    const { client, transport } = scene(
      ({ path, body }) => (decided.push([path, body]), { success: true, status: "running" }),
    );
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    const [added, queued, begun] = exchange(1, "a", "hello", []);
    transport.show(applyAll(VIEW, [added!, queued!, begun!]));
    const ask = (seq: number, id: string): OutlastEvent =>
      ({ ...begun!, seq, type: "approval.requested", payload: asked(id) }) as OutlastEvent;
    transport.say(ask(4, "call_1"), ask(5, "call_2"));
    transport.say({
      ...begun!,
      seq: 6,
      type: "approval.resolved",
      payload: { toolUseId: "call_1", decision: "approve", by: "local" },
    } as OutlastEvent);
    await conversation.submitApproval({ ...asked("call_1"), hash: "h1" }, { decision: "approve" });
    expect(decided).toEqual([
      ["/v1/generations/gen_of_a/approvals/call_1", { decision: "approve", hash: "h1" }],
    ]);
  });

  it("i8_a_question_that_changed_is_refused_and_nothing_is_sent_again", async () => {
    const decided: unknown[] = [];
    const { client, transport } = scene(({ body }) => (decided.push(body), problem(409, "approval_changed")));
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    const [added, queued, begun] = exchange(1, "a", "hello", []);
    transport.show(applyAll(VIEW, [added!, queued!, begun!]));
    const event = (seq: number, type: string, payload: object): OutlastEvent =>
      ({ ...begun!, seq, type, payload }) as OutlastEvent;
    transport.say(event(4, "approval.requested", { ...asked("call_1"), hash: "h1" }));
    await settled();
    const shown = conversation.snapshot().view!.activeRun!.pendingApprovals![0]!;
    transport.say(
      event(5, "attempt.retracted", { attempt: 1, messageIds: [], reason: "worker restarted" }),
      event(6, "approval.requested", { ...asked("call_1"), toolInput: { command: "rm -rf ~" }, hash: "h2" }),
    );
    await settled();
    await expect(conversation.submitApproval(shown, { decision: "approve" })).rejects.toMatchObject({
      code: "approval_changed",
    });
    await settled();
    expect(decided).toEqual([{ decision: "approve", hash: "h1" }]);
    expect(conversation.snapshot().error).toMatchObject({ code: "approval_changed" });
    expect(conversation.snapshot().view?.activeRun?.pendingApprovals).toEqual([
      { ...asked("call_1"), toolInput: { command: "rm -rf ~" }, hash: "h2" },
    ]);
  });
});

describe("tabs", () => {
  it("learn at once what is done in another", async () => {
    const channel = tabs();
    const answer = ({ body, method }: { body: Record<string, unknown>; method: string }): unknown =>
      method === "DELETE" ? new Response(null, { status: 204 }) : started(body["requestId"]);
    const here = scene(answer, { channel });
    const there = scene(answer, { channel });
    there.client.conversation("conv_1").subscribe(() => {});
    await settled();
    there.transport.show(VIEW);
    there.transport.lose();
    await settled();
    expect(there.transport.openLines).toBe(0);
    await here.client.conversation("conv_1").send("hello");
    await settled();
    expect(there.transport.openLines).toBe(1);
    await here.client.deleteConversation("conv_1");
    await settled();
    expect(there.transport.lines).toHaveLength(3);
  });
});
