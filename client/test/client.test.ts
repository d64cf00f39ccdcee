import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { conversationList } from "../src/conversation-list.js";
import { MAX_TRIES } from "../src/http.js";
import { applyAll, emptyView, OutlastClient, OutlastError } from "../src/index.js";
import type { ActiveRun, Conversation, OutlastEvent } from "../src/index.js";
import { RELEASE_GRACE_MS } from "../src/store.js";
import { randomId } from "../src/random-id.js";
import { exchange, problem, scene, snapshot, VIEW } from "./fakes.js";

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

  it("treats a refusal as success if an earlier attempt whose response was lost had succeeded", async () => {
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

  it("treats an identical decision as its own if the response to an earlier attempt was lost", async () => {
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
    ["a web server that returns a page for every path", () => new Response("<html>", { status: 200 })],
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
      scopes: [],
      background: true,
      backgroundJobs: false,
      chatCompletions: false,
      externalProducers: false,
      protocols: [],
      transports: [],
      durability: "commit",
      store: "unknown",
      models: [],
      tools: [],
      toolServersUnavailable: [],
      approvals: false,
      sandbox: "none",
      notifications: false,
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

  it("puts and deletes files by their path", async () => {
    const seen: unknown[] = [];
    const saved = { path: "a b/c", size: 2, hash: "0", change: "added", checkpoint: "cp_1" };
    const { client } = scene(({ method, path, init }) => {
      seen.push([method, path, init.body]);
      return method === "PUT" ? saved : new Response(null, { status: 204 });
    });
    const content = new Uint8Array([1, 2]);
    expect(await client.putFile("conv_1", "a b/c", content)).toEqual(saved);
    await client.deleteFile("conv_1", "a b/c");
    const path = "/v1/conversations/conv_1/files/a%20b/c";
    expect(seen).toEqual([
      ["PUT", path, content],
      ["DELETE", path, null],
    ]);
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

  it("g13_are_replaced_by_the_messages_of_the_generation_when_they_are_no_longer_stored", async () => {
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
