import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { applyAll } from "../src/fold.js";
import type { Conversation } from "../src/index.js";
import { exchange, problem, scene, settled, started, VIEW } from "./fakes.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const texts = (conversation: Conversation): string[] => {
  const { view, pending } = conversation.snapshot();
  const messages = view?.messages.filter(({ role }) => role === "user") ?? [];
  return [...messages.map(({ content }) => content), ...pending.map(({ content }) => String(content))];
};

describe("a message", () => {
  it("is shown once, whichever comes first: the response, its event, or a snapshot", async () => {
    for (const order of ["answer", "event", "snapshot", "finished snapshot"] as const) {
      let answer: () => void = () => {};
      const { client, transport } = scene(async ({ body }) => {
        await new Promise<void>((resolve) => (answer = resolve));
        return started(body["requestId"]);
      });
      const conversation = client.conversation("conv_1");
      const shown = new Set<string>();
      conversation.subscribe(() => shown.add(texts(conversation).join()));
      await settled();
      transport.show(VIEW);
      const sent = conversation.send("hello");
      expect(conversation.snapshot().isGenerating).toBe(true);
      await settled();
      const requestId = conversation.snapshot().pending[0]!.requestId;
      const events = exchange(1, requestId, "hello", ["hi"]);
      if (order === "answer") answer();
      await settled();
      if (order === "snapshot") transport.show(applyAll(VIEW, events.slice(0, 3)));
      else if (order === "finished snapshot") transport.show(applyAll(VIEW, events));
      else transport.say(...events);
      await settled();
      answer();
      await expect(sent).resolves.toMatchObject({ messageId: `message_of_${requestId}` });
      await settled();
      shown.delete("");
      expect([...shown], order).toEqual(["hello"]);
      expect(conversation.snapshot().pending, order).toEqual([]);
    }
  });

  it("is retried under the same request id while the network fails", async () => {
    const names = new Set<unknown>();
    let tries = 0;
    const { client } = scene(({ body }) => {
      names.add(body["requestId"]);
      tries += 1;
      if (tries < 3) throw new TypeError("fetch failed");
      return tries < 4 ? problem(503, "store_unavailable") : started(body["requestId"]);
    });
    const sent = client.conversation("conv_1").send("hello");
    await vi.advanceTimersByTimeAsync(60_000);
    await expect(sent).resolves.toMatchObject({ conversationId: "conv_1" });
    expect([tries, names.size]).toEqual([4, 1]);
  });

  it("that cannot be sent stays, says why, and can be sent again under the same request id or discarded", async () => {
    const names: unknown[] = [];
    let isUp = false;
    const { client } = scene(({ body }) => {
      names.push(body["requestId"], body["model"]);
      return isUp ? started(body["requestId"]) : problem(429, "limit_reached");
    });
    const conversation = client.conversation("conv_1");
    await expect(conversation.send("hello", { model: "demo" })).rejects.toMatchObject({
      code: "limit_reached",
    });
    const [failed] = conversation.snapshot().pending;
    expect(failed).toMatchObject({ status: "failed", error: { code: "limit_reached" } });
    expect(conversation.snapshot()).toMatchObject({ isGenerating: false, error: { code: "limit_reached" } });
    isUp = true;
    await conversation.resend(failed!.requestId);
    expect(conversation.snapshot()).toMatchObject({ error: null, pending: [{ status: "sent" }] });
    expect(names).toEqual([failed!.requestId, "demo", failed!.requestId, "demo"]);
    await expect(conversation.resend("another")).rejects.toMatchObject({ code: "nothing_there" });
  });

  it("whose response is lost for good but that is in the log counts as sent", async () => {
    const { client, transport } = scene(() => {
      throw new TypeError("fetch failed");
    });
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    transport.show(VIEW);
    const sent = conversation.send("hello");
    await settled();
    const { requestId } = conversation.snapshot().pending[0]!;
    transport.say(...exchange(1, requestId, "hello", []).slice(0, 3));
    await vi.advanceTimersByTimeAsync(20_000);
    await expect(sent).resolves.toMatchObject({ generationId: `gen_of_${requestId}` });
    expect(texts(conversation)).toEqual(["hello"]);
    expect(conversation.snapshot().error).toBeNull();
  });

  it("that is aborted is no error", async () => {
    const stop = new AbortController();
    const { client } = scene(
      ({ init }) =>
        new Promise((_resolve, reject) => {
          init.signal?.addEventListener("abort", () => reject(new TypeError("fetch failed")));
        }),
    );
    const conversation = client.conversation("conv_1");
    const sent = conversation.send("hello", { signal: stop.signal });
    await settled();
    stop.abort();
    await expect(sent).rejects.toMatchObject({ name: "AbortError" });
    expect(conversation.snapshot()).toMatchObject({
      error: null,
      pending: [{ status: "failed", error: null }],
    });
  });

  it("creates a new conversation; one that follows at once goes to the same", async () => {
    const bodies: unknown[] = [];
    const { client, transport } = scene(
      ({ body }) => (bodies.push(body["conversationId"]), started(body["requestId"])),
    );
    const conversation = client.newConversation();
    conversation.subscribe(() => {});
    expect(conversation.snapshot()).toMatchObject({ id: null, view: null, connection: { type: "idle" } });
    expect(transport.lines).toHaveLength(0);
    await Promise.all([conversation.send("one"), conversation.send("two")]);
    expect(bodies).toEqual([undefined, "conv_1"]);
    expect(client.conversation("conv_1")).toBe(conversation);
    expect(transport.lines).toHaveLength(1);
    expect(texts(conversation)).toEqual(["one", "two"]);
  });

  it("that was sent can be stopped before any event has arrived", async () => {
    const cancelled: string[] = [];
    const { client } = scene(({ path, body }) => {
      if (!path.endsWith("/cancel")) return started(body["requestId"]);
      cancelled.push(path);
      return { success: true, status: "cancelled" };
    });
    const conversation = client.conversation("conv_1");
    await conversation.send("hello");
    const { requestId, generationId } = conversation.snapshot().pending[0]!;
    expect(generationId).toBe(`gen_of_${requestId}`);
    await conversation.cancel();
    expect(cancelled).toEqual([`/v1/generations/gen_of_${requestId}/cancel`]);
  });

  it("arrives after the one that was sent before it, even if that one is retried", async () => {
    const arrived: unknown[] = [];
    let tries = 0;
    const { client } = scene(({ body }) => {
      if ((tries += 1) === 1) throw new TypeError("fetch failed");
      arrived.push(body["content"]);
      return started(body["requestId"]);
    });
    const conversation = client.conversation("conv_1");
    const sent = Promise.all([conversation.send("one"), conversation.send("two")]);
    await vi.advanceTimersByTimeAsync(20_000);
    await sent;
    expect(arrived).toEqual(["one", "two"]);
  });

  it("that failed takes its error along when it is discarded, or turns out to have arrived", async () => {
    const { client, transport } = scene(() => problem(429, "limit_reached"));
    const conversation = client.conversation("conv_1");
    conversation.subscribe(() => {});
    await settled();
    transport.show(VIEW);
    for (const leave of ["discard", "arrive"]) {
      await expect(conversation.send("hello")).rejects.toMatchObject({ code: "limit_reached" });
      expect(conversation.snapshot().error).toMatchObject({ code: "limit_reached" });
      const { requestId } = conversation.snapshot().pending[0]!;
      if (leave === "discard") conversation.discard(requestId);
      else transport.say(...exchange(1, requestId, "hello", []).slice(0, 3));
      await settled();
      expect(conversation.snapshot(), leave).toMatchObject({ error: null, pending: [] });
    }
  });

  it("waits for the network without using up tries, and goes out when it is back", async () => {
    let tries = 0;
    let isUp = false;
    const { client, device } = scene(({ body }) => {
      tries += 1;
      if (!isUp) throw new TypeError("fetch failed");
      return started(body["requestId"]);
    });
    device.become("offline");
    const conversation = client.conversation("conv_1");
    const sent = conversation.send("hello");
    await vi.advanceTimersByTimeAsync(120_000);
    expect(conversation.snapshot().pending).toMatchObject([{ status: "sending" }]);
    expect(tries).toBeLessThan(30);
    isUp = true;
    device.become("online");
    await settled();
    await expect(sent).resolves.toMatchObject({ conversationId: "conv_1" });
  });

  it("is retried at once when the page becomes visible, and not in bursts otherwise", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0);
    let tries = 0;
    const { client, device } = scene(() => {
      tries += 1;
      throw new TypeError("fetch failed");
    });
    client
      .conversation("conv_1")
      .send("hello")
      .catch(() => {});
    await vi.advanceTimersByTimeAsync(200);
    expect(tries).toBe(1);
    device.become("visible");
    await settled();
    expect(tries).toBe(2);
    vi.restoreAllMocks();
  });

  it("can be sent under the request id of an earlier page", async () => {
    const names: unknown[] = [];
    const { client } = scene(({ body }) => (names.push(body["requestId"]), started(body["requestId"])));
    const conversation = client.conversation("conv_1");
    await conversation.send("hello", { requestId: "before" });
    expect(names).toEqual(["before"]);
    expect(conversation.snapshot().pending).toMatchObject([{ requestId: "before", status: "sent" }]);
  });
});
