import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { conversationList, POLL_MS } from "../src/conversation-list.js";
import type { ConversationList } from "../src/conversation-list.js";
import { MAX_TRIES } from "../src/http.js";
import { applyAll, emptyView, OutlastClient, OutlastError } from "../src/index.js";
import type { ActiveRun, Conversation, ConversationDocument, OutlastEvent } from "../src/index.js";
import { RELEASE_GRACE_MS } from "../src/store.js";
import { randomId } from "../src/random-id.js";
import { exchange, problem, scene, settled, snapshot, tabs, VIEW } from "./fakes.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("a client", () => {
  it("gives up after a number of tries and reports a network error", async () => {
    let tries = 0;
    const { client } = scene(() => {
      tries += 1;
      throw new TypeError("fetch failed");
    });
    const sent = client.startGeneration({ content: "hello" });
    const failed = expect(sent).rejects.toMatchObject({ name: "OutlastError", status: 0, code: "network" });
    await vi.advanceTimersByTimeAsync(60_000);
    await failed;
    expect(tries).toBe(MAX_TRIES);
  });

  it("does not retry a refusal, and passes on the problem document", async () => {
    let tries = 0;
    const { client } = scene(
      () => ((tries += 1), problem(409, "conversation_busy", { generationId: "gen_1" })),
    );
    const error = await client.startGeneration({ content: "hello" }).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(OutlastError);
    expect(error).toMatchObject({
      status: 409,
      code: "conversation_busy",
      detail: "this is conversation_busy",
      problem: { generationId: "gen_1" },
    });
    expect(tries).toBe(1);
  });

  it("takes a refusal as the result if an earlier try, whose response was lost, succeeded", async () => {
    let tries = 0;
    const { client } = scene(({ method }) => {
      tries += 1;
      if (tries % 2 === 1) throw new TypeError("fetch failed");
      return method === "DELETE"
        ? problem(404, "not_found")
        : problem(409, "not_interrupted", { statusIs: "running" });
    });
    const resumed = client.resumeGeneration("gen_1");
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await resumed).toEqual({ success: false, status: "running" });
    const deleted = client.deleteConversation("conv_1");
    await vi.advanceTimersByTimeAsync(10_000);
    await expect(deleted).resolves.toBeUndefined();
  });

  it("takes the same decision for its own when the response to an earlier try was lost", async () => {
    let tries = 0;
    const { client } = scene(() => {
      if ((tries += 1) % 2 === 1) throw new TypeError("fetch failed");
      return problem(409, "already_decided", { decision: "approve", by: "local" });
    });
    const decide = async (decision: "approve" | "deny"): Promise<unknown> => {
      const decided = client.submitApproval("gen_1", "call_1", { decision }).catch((error: unknown) => error);
      await vi.advanceTimersByTimeAsync(10_000);
      return decided;
    };
    expect(await decide("approve")).toMatchObject({ success: true });
    expect(await decide("deny")).toMatchObject({ code: "already_decided" });
  });

  it.each([
    ["an old server", () => problem(404, "not_found")],
    ["a server that is not Outlast", () => new Response("<html>", { status: 404 })],
    ["a page that answers everything", () => new Response("<html>", { status: 200 })],
  ])("b9_takes_%s_to_offer_nothing, and asks once", async (_, reply) => {
    let asked = 0;
    const fetch = async (): Promise<Response> => ((asked += 1), reply());
    const client = new OutlastClient({ baseUrl: "http://outlast.test", fetch });
    expect(await client.capabilities()).toMatchObject({ name: "unknown", background: false, tools: [] });
    await client.capabilities();
    expect(asked).toBe(1);
  });

  it("b9_takes_missing_and_strange_fields_as_not_offered, and keeps unknown ones", async () => {
    const said = { name: "outlast", background: true, tools: "all", approvals: null, colour: "green" };
    const client = new OutlastClient({
      baseUrl: "http://outlast.test",
      fetch: async () => Response.json(said),
    });
    expect(await client.capabilities()).toEqual({
      name: "outlast",
      version: "unknown",
      user: "local",
      background: true,
      transports: [],
      durability: "commit",
      models: [],
      tools: [],
      approvals: false,
      sandbox: "none",
      colour: "green",
    });
  });

  it("b9_asks_again_for_what_a_server_offers_if_it_could_not_be_reached", async () => {
    let isUp = false;
    const fetch = async (): Promise<Response> => {
      if (!isUp) throw new TypeError("fetch failed");
      return Response.json({ name: "outlast", background: true });
    };
    const client = new OutlastClient({ baseUrl: "http://outlast.test", fetch });
    const failed = expect(client.capabilities()).rejects.toMatchObject({ code: "network" });
    await vi.advanceTimersByTimeAsync(60_000);
    await failed;
    isUp = true;
    expect(await client.capabilities()).toMatchObject({ background: true });
  });

  it("clears a title with null", async () => {
    const bodies: unknown[] = [];
    const { client } = scene(({ body }) => (bodies.push(body), VIEW.conversation));
    await client.conversation("conv_1").rename(null);
    await conversationList(client).rename("conv_1", null);
    expect(bodies).toEqual([{ title: null }, { title: null }]);
  });

  it("calls the token function before every request", async () => {
    const seen: unknown[] = [];
    let turn = 0;
    const { client } = scene(
      ({ init }) => (seen.push((init.headers as Record<string, string>)["authorization"]), { data: [] }),
      {
        token: async () => `token ${(turn += 1)}`,
      },
    );
    await client.listModels();
    await client.listModels();
    expect(seen).toEqual(["Bearer token 1", "Bearer token 2"]);
  });

  it("keeps a limited number of conversations that nobody watches", async () => {
    const { client } = scene();
    const watched = client.conversation("watched");
    watched.subscribe(() => {});
    const busy = client.conversation("busy");
    busy.send("hello").catch(() => {});
    const rests = (id: string): Conversation => {
      const store = client.conversation(id);
      store.subscribe(() => {})();
      vi.advanceTimersByTime(RELEASE_GRACE_MS);
      return store;
    };
    const [first, second] = [rests("first"), rests("second")];
    for (let i = 0; i < 9; i += 1) rests(`conv_${i}`);
    // A component that renders now and subscribes later must find the same store.
    const drawn = Array.from({ length: 20 }, (_, i) => client.conversation(`drawn_${i}`));
    expect(client.conversation("first")).toBe(first);
    expect(drawn.map((store) => client.conversation(store.id!) === store)).not.toContain(false);
    rests("last");
    expect(client.conversation("watched")).toBe(watched);
    expect(client.conversation("busy")).toBe(busy);
    expect(client.conversation("second")).not.toBe(second);
  });

  it("generates ids on pages without TLS too", () => {
    vi.stubGlobal("crypto", { getRandomValues: crypto.getRandomValues.bind(crypto) });
    const names = new Set(Array.from({ length: 100 }, randomId));
    vi.unstubAllGlobals();
    expect(names.size).toBe(100);
  });
});

describe("a generation's events", () => {
  const events = exchange(1, "a", "hello", ["one ", "two ", "three"]);

  /** A server whose first connection breaks after five events, and that then has the log `later`. */
  const read = async (later: readonly OutlastEvent[]): Promise<{ seqs: number[]; error: unknown }> => {
    let streams = 0;
    const { client } = scene(({ search }) => {
      const after = Number(search.get("after") ?? 0);
      const log = streams === 0 ? events.slice(0, 5) : later;
      const rest = log.filter(({ seq }) => seq > after);
      if (search.get("format") === "json") return { data: rest.slice(0, 1) };
      streams += 1;
      if (after > (log.at(-1)?.seq ?? 0)) return problem(409, "cursor_ahead");
      const text = rest.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
      return new Response(text, { headers: { "content-type": "text/event-stream" } });
    });
    const seqs: number[] = [];
    const reading = (async () => {
      for await (const { seq } of client.subscribeGeneration("gen_of_a")) seqs.push(seq);
    })();
    const done = reading.then(
      () => null,
      (error: unknown) => error,
    );
    await vi.advanceTimersByTimeAsync(60_000);
    return { seqs, error: await done };
  };

  it("continue where they were after a lost connection, and end", async () => {
    expect(await read(events)).toEqual({ seqs: [1, 2, 3, 4, 5, 6, 7, 8, 9], error: null });
  });

  it("g13_are_answered_from_the_messages_of_the_generation_when_they_are_no_longer_kept", async () => {
    const whole = applyAll(VIEW, exchange(1, "old", "hello", ["one ", "two"]));
    // A later generation is running, and its messages are not in the snapshot.
    const later = { generationId: "gen_of_b", requestId: "b", status: "running" } as ActiveRun;
    const view = { ...whole, activeRun: later, lastSeq: 40 };
    let streams = 0;
    const { client } = scene(() => {
      streams += 1;
      return new Response(`data: ${JSON.stringify(snapshot(view))}\n\n`, {
        headers: { "content-type": "text/event-stream" },
      });
    });
    const seen: OutlastEvent[] = [];
    for await (const event of client.subscribeGeneration("gen_of_old")) seen.push(event);
    expect(streams).toBe(1);
    const folded = applyAll(emptyView("", ""), seen);
    expect(folded.messages.map(({ content }) => content)).toEqual(["hello", "one two"]);
  });

  it("continue after a snapshot in the middle of a generation", async () => {
    const all = exchange(1, "a", "hello", ["one ", "two"]);
    const view = applyAll(VIEW, all.slice(0, 5));
    let streams = 0;
    const { client } = scene(({ search }) => {
      streams += 1;
      const after = search.get("after");
      // The first connection breaks right after the snapshot.
      const sent = streams === 1 ? [snapshot(view)] : all.filter(({ seq }) => seq > Number(after));
      const text = sent.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
      return new Response(text, { headers: { "content-type": "text/event-stream" } });
    });
    const seen: OutlastEvent[] = [];
    const reading = (async () => {
      for await (const event of client.subscribeGeneration("gen_of_a", { after: 2 })) seen.push(event);
    })();
    await vi.advanceTimersByTimeAsync(60_000);
    await reading;
    expect(seen.map(({ type, seq }) => `${seq} ${type}`)).toEqual([
      "5 snapshot",
      "6 chat.delta",
      "7 assistant.segment.ended",
      "8 chat.done",
    ]);
    expect(applyAll(VIEW, seen)).toEqual(applyAll(VIEW, all));
  });

  it("fail to read, without gaps or duplicates, when a crash lost some of them", async () => {
    const again = events.map((event) => ({ ...event, ts: "2026-01-01T00:00:09.000Z" }) as OutlastEvent);
    const rewritten = [...events.slice(0, 3), ...again.slice(3)];
    for (const later of [rewritten, events.slice(0, 3)]) {
      const { seqs, error } = await read(later);
      expect(seqs).toEqual([1, 2, 3, 4, 5]);
      expect(error).toMatchObject({ code: "cursor_ahead" });
    }
  });
});

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
