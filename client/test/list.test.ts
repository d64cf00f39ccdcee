import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { conversationList, POLL_MS } from "../src/conversation-list.js";
import type { ConversationList } from "../src/conversation-list.js";
import type { ConversationDocument } from "../src/index.js";
import { exchange, problem, scene, settled, tabs, VIEW } from "./fakes.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("the list of conversations", () => {
  const document = (id: string, change: Partial<ConversationDocument> = {}): ConversationDocument => ({
    ...VIEW.conversation,
    id,
    ...change,
  });

  it("is read when it is watched, and again only while a generation runs", async () => {
    let reads = 0;
    let data = [document("conv_1", { generationStatus: "generating", lastSeq: 1 })];
    const { client } = scene(() => ((reads += 1), { data, nextCursor: null }));
    const list = conversationList(client);
    expect(conversationList(client)).toBe(list);
    expect(list.snapshot()).toMatchObject({ isLoading: true, conversations: [] });
    const stop = list.subscribe(() => {});
    await settled();
    expect(list.snapshot()).toMatchObject({ isLoading: false, conversations: data, hasMore: false });
    await vi.advanceTimersByTimeAsync(POLL_MS);
    expect(reads).toBe(2);
    await vi.advanceTimersByTimeAsync(600_000);
    expect(reads).toBeLessThan(30);
    data = [document("conv_1", { generationStatus: "complete", lastSeq: 9 })];
    await vi.advanceTimersByTimeAsync(60_000);
    expect(list.snapshot().conversations).toEqual(data);
    const after = reads;
    await vi.advanceTimersByTimeAsync(600_000);
    expect(reads).toBe(after);
    stop();
  });

  it("is read again when the page is visible or online, and reports errors", async () => {
    let reads = 0;
    const { client, device } = scene(
      () => ((reads += 1), reads === 2 ? problem(500, "store_broken") : { data: [], nextCursor: null }),
    );
    const list = conversationList(client);
    list.subscribe(() => {});
    await settled();
    device.become("visible");
    device.become("online");
    await vi.advanceTimersByTimeAsync(1_000);
    expect(reads).toBe(2);
    expect(list.snapshot().error).toMatchObject({ code: "store_broken" });
    await vi.advanceTimersByTimeAsync(POLL_MS);
    expect(list.snapshot().error).toBeNull();
  });

  it("learns at once what happens in a conversation that is open here or in another tab", async () => {
    const channel = tabs();
    const here = scene(() => ({ data: [document("conv_0")], nextCursor: null }), { channel });
    const there = scene(() => ({ data: [document("conv_0")], nextCursor: null }), { channel });
    const lists = [conversationList(here.client), conversationList(there.client)];
    for (const list of lists) list.subscribe(() => {});
    here.client.conversation("conv_1").subscribe(() => {});
    await settled();
    here.transport.show(VIEW);
    here.transport.say(...exchange(1, "a", "hello", []).slice(0, 3));
    await settled();
    for (const list of lists) {
      expect(list.snapshot().conversations.find(({ id }) => id === "conv_1")).toMatchObject({
        generationStatus: "generating",
      });
    }
  });

  it("loads more, and keeps what it has loaded", async () => {
    const all = Array.from({ length: 120 }, (_, i) => document(`conv_${i}`));
    const { client } = scene(({ path }) => {
      expect(path).toBe("/v1/conversations");
      return { data: all.slice(0, 50), nextCursor: "c" };
    });
    const list = conversationList(client);
    list.subscribe(() => {});
    await settled();
    expect(list.snapshot()).toMatchObject({ hasMore: true });
    await list.loadMore();
    await settled();
    expect(list.snapshot().conversations).toHaveLength(50);
  });

  /** A server with a number of conversations. */
  const many = (count: number) => {
    const all = Array.from({ length: count }, (_, i) =>
      document(`conv_${i}`, { createdAt: new Date(1e12 - i * 1e6).toISOString() }),
    );
    const read = (search: URLSearchParams): unknown => {
      const from = Number(search.get("cursor") ?? 0);
      const to = from + Number(search.get("limit"));
      return { data: all.slice(from, to), nextCursor: to < all.length ? String(to) : null };
    };
    return { all, read };
  };
  const ids = (list: ConversationList): string[] => list.snapshot().conversations.map(({ id }) => id);

  it("keeps what was loaded beyond the largest page, and what was opened beyond all pages", async () => {
    const { all, read } = many(300);
    const { client, device, transport } = scene(({ search }) => read(search));
    const list = conversationList(client);
    list.subscribe(() => {});
    await settled();
    client.conversation("conv_280").subscribe(() => {});
    await settled();
    transport.show({ ...VIEW, conversation: all[280]! });
    await settled();
    for (let pages = 1; pages < 5; pages += 1) await list.loadMore();
    await settled();
    const before = ids(list);
    expect([before.length, before.at(-1)]).toEqual([251, "conv_280"]);
    device.become("visible");
    await vi.advanceTimersByTimeAsync(1_000);
    expect(ids(list)).toEqual(before);
    expect(list.snapshot().hasMore).toBe(true);
    await list.loadMore();
    await settled();
    expect(ids(list)).toEqual(all.map(({ id }) => id));
    expect(list.snapshot().hasMore).toBe(false);
    all.splice(10, 1);
    device.become("visible");
    await vi.advanceTimersByTimeAsync(1_000);
    expect(ids(list)).toEqual(all.map(({ id }) => id));
  });

  it("does not show a conversation that was deleted during a read", async () => {
    const { read } = many(3);
    let answer = (): void => {};
    const { client } = scene(async ({ method, search }) => {
      if (method === "DELETE") return new Response(null, { status: 204 });
      const page = read(search);
      await new Promise<void>((resolve) => (answer = resolve));
      return page;
    });
    const list = conversationList(client);
    list.subscribe(() => {});
    await settled();
    await list.remove("conv_1");
    answer();
    await settled();
    expect(ids(list)).toEqual(["conv_0", "conv_2"]);
  });

  it("is read again if a refresh is requested during a read", async () => {
    const { all, read } = many(1);
    const answers: (() => void)[] = [];
    const { client } = scene(async ({ search }) => {
      const page = read(search);
      await new Promise<void>((resolve) => answers.push(resolve));
      return page;
    });
    const list = conversationList(client);
    list.subscribe(() => {});
    await settled();
    all.unshift(document("conv_new", { createdAt: new Date(2e12).toISOString() }));
    const fresh = Promise.all([list.refresh(), list.refresh()]);
    answers[0]!();
    await vi.waitUntil(() => answers.length === 2);
    answers[1]!();
    await fresh;
    await settled();
    expect([ids(list), answers.length]).toEqual([["conv_new", "conv_0"], 2]);
  });
});
