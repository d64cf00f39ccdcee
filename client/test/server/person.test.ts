import { describe, expect, it } from "vitest";
import { conversationList } from "../../src/conversation-list.js";
import { apply, OutlastClient } from "../../src/index.js";
import type { OutlastEvent } from "../../src/index.js";
import { until } from "./outlast.js";
import { agreed, cleanup, ended, server, view, watch } from "./stage.js";

describe("a person", () => {
  it("is asked after a crash if the server is set to ask, and may resume or dismiss", async () => {
    const home = await server({ OUTLAST_RECOVERY__MODE: "ask" });
    const client = new OutlastClient({ baseUrl: home.url });
    const conversation = watch(client.newConversation());
    const interrupt = async (): Promise<void> => {
      await conversation.send("Tell me something in 60 words");
      await until("words", () => Object.values(conversation.snapshot().view?.overlays ?? {}).join("") !== "");
      await home.kill();
      await home.restart();
      await until("the question", () => conversation.snapshot().generation?.status === "interrupted");
      expect(conversation.snapshot().isGenerating).toBe(false);
    };
    await interrupt();
    expect(await conversation.resume()).toMatchObject({ success: true });
    expect(await until("the end", ended(conversation))).toMatchObject({ status: "completed" });
    await interrupt();
    expect(await conversation.dismiss()).toMatchObject({ success: true });
    expect(
      await until("the end", () => view(conversation).activeRun === null && ended(conversation)()),
    ).toMatchObject({ reason: "dismissed" });
    await expect(conversation.resume()).rejects.toMatchObject({ code: "nothing_there" });
    expect(conversation.snapshot().error).toMatchObject({ code: "nothing_there" });
    await conversation.retry("continue");
    await until(
      "another end",
      () => conversation.snapshot().lastEnd?.status === "completed" && ended(conversation)(),
    );
    await agreed(client, conversation);
  });

  it("may stop a message that is still being sent, and queue others", async () => {
    const { url } = await server();
    const conversation = watch(new OutlastClient({ baseUrl: url }).newConversation());
    const sent = conversation.send("Tell me something in 500 words");
    expect(await conversation.cancel()).toEqual({ success: true, status: "cancelled" });
    await sent;
    await Promise.all(
      ["one in 5 words", "two in 5 words", "three in 5 words"].map((text) =>
        conversation.send(text, { whenBusy: "queue" }),
      ),
    );
    await until(
      "all answers",
      () =>
        view(conversation)?.messages.filter(
          ({ status, role }) => role === "assistant" && status === "complete",
        ).length === 3,
    );
    expect(conversation.snapshot().pending).toEqual([]);
  });

  it("whose first two messages are sent together gets one conversation", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url });
    const conversation = client.newConversation();
    const [one, two] = await Promise.all([
      conversation.send("one"),
      conversation.send("two", { whenBusy: "queue" }),
    ]);
    expect(one.conversationId).toBe(two.conversationId);
    expect((await client.listConversations()).data).toHaveLength(1);
  });

  it("keeps a message that was refused, and may send it again or discard it", async () => {
    const { url } = await server();
    const conversation = watch(new OutlastClient({ baseUrl: url }).newConversation());
    await conversation.send("Tell me something in 500 words");
    await until("it runs", () => view(conversation)?.activeRun);
    await expect(conversation.send("too early")).rejects.toMatchObject({ code: "conversation_busy" });
    const { pending, error } = conversation.snapshot();
    expect(pending).toMatchObject([
      { status: "failed", content: "too early", error: { code: "conversation_busy" } },
    ]);
    expect(error).toMatchObject({ code: "conversation_busy" });
    await conversation.resend(pending[0]!.requestId, { whenBusy: "interrupt" });
    await until(
      "the answer",
      () =>
        view(conversation).messages.at(-1)?.role === "assistant" &&
        view(conversation).messages.at(-2)?.content === "too early",
    );
    expect(conversation.snapshot().pending).toEqual([]);
    await expect(conversation.send(" ")).rejects.toMatchObject({ status: 422 });
    conversation.discard(conversation.snapshot().pending[0]!.requestId);
    await until("it is gone", () => conversation.snapshot().pending.length === 0);
  });

  it("loads older messages in front of the others", async () => {
    const { url } = await server({ OUTLAST_MODELS__DEFAULT__PACE: "0ms" });
    const client = new OutlastClient({ baseUrl: url });
    const conversation = client.newConversation();
    const sends = 7;
    for (let i = 0; i < sends; i += 1) {
      const { generationId } = await conversation.send(`message ${i} in 1 words`);
      for await (const _event of client.subscribeGeneration(generationId));
    }
    const all = await client.getConversation(conversation.id!);
    const { view: short } = { view: await client.getConversation(conversation.id!, { limit: 4 }) };
    expect(short.hasMore).toBe(true);
    const page = await client.getMessages(conversation.id!, { before: short.messages[0]!.seq });
    expect([...page.data, ...short.messages]).toEqual(all.messages);
    expect(apply(short, { type: "snapshot", payload: all } as OutlastEvent)).toBe(all);
  });

  it("sees the state of each conversation in the list", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url });
    const list = conversationList(client);
    cleanup.push(list.subscribe(() => {}));
    await until("the empty list", () => !list.snapshot().isLoading);
    const conversation = watch(client.newConversation());
    await conversation.send("Tell me something in 30 words");
    await until("it is there", () => list.snapshot().conversations[0]?.generationStatus === "generating");
    await until("it has ended", () => list.snapshot().conversations[0]?.generationStatus === "complete");
    await until("its title", () => list.snapshot().conversations[0]?.title !== null);
    await list.rename(conversation.id!, "Words");
    expect(list.snapshot().conversations).toHaveLength(1);
    await until("its new title", () => list.snapshot().conversations[0]?.title === "Words");
    await list.remove(conversation.id!);
    await until("it is gone", () => list.snapshot().conversations.length === 0);
  });
});
