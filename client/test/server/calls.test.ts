import { describe, expect, it } from "vitest";
import { applyAll, emptyView, OutlastClient, OutlastError } from "../../src/index.js";
import type { OutlastEvent } from "../../src/index.js";
import { proxy, server } from "./stage.js";

describe("a client", () => {
  it("that sends the same request twenty times creates one message", async () => {
    const { url, port } = await server();
    const bad = await proxy(port);
    const client = new OutlastClient({ baseUrl: bad.url });
    const start = { content: "hello", requestId: "the same" };
    let limits = 0;
    // Some responses are lost after the request has arrived.
    bad.limit = () => ((limits += 1) % 3 === 0 ? 10 : 100_000);
    const all = await Promise.all(Array.from({ length: 20 }, () => client.startGeneration(start)));
    expect(new Set(all.map(({ generationId }) => generationId)).size).toBe(1);
    expect(limits).toBeGreaterThan(3);
    const direct = new OutlastClient({ baseUrl: url });
    expect((await direct.listConversations()).data).toHaveLength(1);
    const { messages } = await direct.getConversation(all[0]!.conversationId);
    expect(messages.filter(({ role }) => role === "user")).toHaveLength(1);
  });

  it("follows a generation to its end across lost connections, each event once", async () => {
    const { url, port } = await server();
    const bad = await proxy(port);
    const client = new OutlastClient({ baseUrl: bad.url });
    const { generationId, conversationId } = await client.startGeneration({
      content: "Tell me something in 80 words",
    });
    bad.limit = () => 3_000;
    const events: OutlastEvent[] = [];
    for await (const event of client.subscribeGeneration(generationId)) {
      events.push(event);
      if (events.length % 20 === 0) bad.reset();
    }
    const direct = new OutlastClient({ baseUrl: url });
    const all: OutlastEvent[] = [];
    for (let page = await direct.getGenerationEvents(generationId, { limit: 30 }); ;) {
      all.push(...page.data);
      if (page.ended) break;
      page = await direct.getGenerationEvents(generationId, { after: page.nextAfter, limit: 30 });
    }
    expect(events).toEqual(all);
    const generation = await direct.getGenerationStatus(generationId);
    expect(applyAll(emptyView(conversationId, events[0]!.ts), events).messages.at(-1)!.parts).toEqual(
      generation.contentParts,
    );
    const rest: OutlastEvent[] = [];
    for await (const event of client.subscribeGeneration(generationId, { after: all[9]!.seq }))
      rest.push(event);
    expect(rest).toEqual(all.slice(10));
  });

  it("stops following when aborted, and reports why it cannot follow", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url });
    const { generationId } = await client.startGeneration({ content: "Tell me something in 500 words" });
    const stop = new AbortController();
    const following = (async () => {
      for await (const event of client.subscribeGeneration(generationId, { signal: stop.signal })) {
        if (event.type === "chat.delta") stop.abort();
      }
    })();
    await expect(following).rejects.toMatchObject({ name: "AbortError" });
    await expect(client.subscribeGeneration("gen_nowhere").next()).rejects.toBeInstanceOf(OutlastError);
    await expect(client.startGeneration({ content: "x", signal: AbortSignal.abort() })).rejects.toMatchObject(
      { name: "AbortError" },
    );
  });

  it("gets a code and a text for every refusal", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url });
    await expect(client.startGeneration({ content: " " })).rejects.toMatchObject({
      status: 422,
      code: "invalid_request",
    });
    const { conversationId, generationId } = await client.startGeneration({
      content: "Tell me something in 500 words",
    });
    const busy = client.startGeneration({ conversationId, content: "me too" });
    await expect(busy).rejects.toMatchObject({ code: "conversation_busy", problem: { generationId } });
    await expect(client.resumeGeneration(generationId)).rejects.toMatchObject({ code: "not_interrupted" });
    await expect(client.submitApproval(generationId, "t", { decision: "approve" })).rejects.toMatchObject({
      status: 404,
    });
  });

  it("finds out what the server offers", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url });
    expect(await client.capabilities()).toMatchObject({
      name: "outlast",
      background: true,
      durability: "commit",
    });
    expect((await client.listModels()).map(({ id }) => id)).toContain("default");
  });

  it("creates, lists, renames, pages through and deletes conversations", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url });
    const made = await client.createConversation({ title: "Tea", metadata: { branch: "main" } });
    expect(await client.updateConversation(made.id, { title: "Coffee" })).toMatchObject({
      title: "Coffee",
      metadata: { branch: "main" },
    });
    expect((await client.listConversations({ limit: 1 })).data).toMatchObject([
      { id: made.id, title: "Coffee" },
    ]);
    const { generationId } = await client.startGeneration({ conversationId: made.id, content: "hello" });
    for await (const _event of client.subscribeGeneration(generationId));
    const page = await client.getMessages(made.id, { limit: 1 });
    expect(page).toMatchObject({ hasMore: true, data: [{ role: "assistant" }] });
    expect((await client.getMessages(made.id, { before: page.data[0]!.seq })).data).toMatchObject([
      { content: "hello" },
    ]);
    expect(
      (await client.listGenerations({ conversationId: made.id, status: "completed" })).data,
    ).toMatchObject([{ id: generationId }]);
    await client.deleteConversation(made.id);
    await expect(client.getConversation(made.id)).rejects.toMatchObject({ status: 404 });
  });
});
