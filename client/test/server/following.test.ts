import { describe, expect, it } from "vitest";
import { OutlastClient } from "../../src/index.js";
import { until } from "./outlast.js";
import { agreed, ended, proxy, server, transports, view, watch } from "./stage.js";

describe.each(transports)("over %s", (_name, options) => {
  it("an answer is streamed, and the view is the server's", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url, ...options });
    const conversation = watch(client.newConversation());
    const lengths = new Set<number>();
    conversation.subscribe(() =>
      lengths.add(Object.values(conversation.snapshot().view?.overlays ?? {}).join("").length),
    );
    await conversation.send("Tell me something in 60 words");
    expect(conversation.id).toMatch(/^conv_/);
    expect(client.conversation(conversation.id!)).toBe(conversation);
    expect(await until("the end", ended(conversation))).toMatchObject({
      status: "completed",
      errorMessage: null,
    });
    expect(lengths.size).toBeGreaterThan(5);
    expect(conversation.snapshot().pending).toEqual([]);
    await agreed(client, conversation);
  });

  it("a message is shown once from the moment it is sent", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url, ...options });
    const conversation = watch(client.newConversation());
    const counts: number[] = [];
    conversation.subscribe(() => {
      const { view, pending } = conversation.snapshot();
      counts.push(pending.length + (view?.messages.filter(({ role }) => role === "user").length ?? 0));
    });
    await conversation.send("first");
    await until("the first answer", ended(conversation));
    expect(new Set(counts)).toEqual(new Set([1]));
    counts.length = 0;
    const sent = conversation.send("second");
    expect(conversation.snapshot().pending).toMatchObject([{ content: "second", status: "sending" }]);
    await sent;
    await until("the second answer", () => view(conversation).messages.length === 4 && ended(conversation)());
    expect(new Set(counts)).toEqual(new Set([2]));
  });

  it("connections that break all the time lose no text", async () => {
    const { url, port } = await server();
    const bad = await proxy(port);
    const client = new OutlastClient({ baseUrl: bad.url, ...options });
    const conversation = watch(client.newConversation());
    await conversation.send("Tell me something in 150 words");
    await until("the stream", () => conversation.snapshot().view);
    const before = bad.count;
    let size = 1;
    bad.limit = () => 400 + (size = (size * 7919) % 1_000) * 3;
    bad.reset();
    let turn = 0;
    while (ended(conversation)() === null) {
      const at = view(conversation).lastSeq;
      await until("some progress", () => view(conversation).lastSeq > at + 5 || ended(conversation)());
      if ((turn += 1) % 2 === 0) bad.cut();
      else bad.reset();
    }
    expect(bad.count).toBeGreaterThan(before + 3);
    bad.limit = null;
    bad.cut();
    await agreed(new OutlastClient({ baseUrl: url }), conversation);
  });

  it("a server that is killed and restarted is followed to the end", async () => {
    const home = await server();
    const client = new OutlastClient({ baseUrl: home.url, ...options });
    const conversation = watch(client.newConversation());
    await conversation.send("Tell me something in 120 words");
    for (const words of [100, 200]) {
      await until(
        "some words",
        () => Object.values(view(conversation)?.overlays ?? {}).join("").length > words,
      );
      await home.kill();
      await until("the loss", () => conversation.snapshot().connection.type !== "live");
      await home.restart();
    }
    expect(await until("the end", ended(conversation))).toMatchObject({ status: "completed" });
    await agreed(client, conversation);
  });

  it("both clients see what one cancels", async () => {
    const { url } = await server();
    const [mine, yours] = [
      new OutlastClient({ baseUrl: url, ...options }),
      new OutlastClient({ baseUrl: url, ...options }),
    ];
    const here = watch(mine.newConversation());
    await here.send("Tell me something in 500 words");
    const there = watch(yours.conversation(here.id!));
    await until("words at both", () =>
      [here, there].every((store) => Object.values(store.snapshot().view?.overlays ?? {}).join("") !== ""),
    );
    expect(await there.cancel()).toEqual({ success: true, status: "cancelled" });
    for (const store of [here, there]) {
      expect(await until("the end", ended(store))).toMatchObject({ status: "cancelled", reason: "user" });
    }
    expect(view(here)).toEqual(view(there));
    expect(await here.cancel(view(here).conversation.currentGenerationId!)).toEqual({
      success: false,
      status: "cancelled",
    });
  });

  it("a conversation that does not exist, or was deleted, ends the connection with the reason", async () => {
    const { url } = await server();
    const client = new OutlastClient({ baseUrl: url, ...options });
    const nowhere = watch(client.conversation("conv_nowhere"));
    await until("the refusal", () => nowhere.snapshot().connection.type === "ended");
    expect(nowhere.snapshot().connection).toMatchObject({ error: { status: 404, code: "not_found" } });
    const conversation = watch(client.newConversation());
    await conversation.send("hello");
    await until("the stream", () => conversation.snapshot().view);
    await conversation.remove();
    await until("the refusal", () => conversation.snapshot().connection.type === "ended");
    expect(conversation.snapshot().connection).toMatchObject({ error: { status: 404, code: "not_found" } });
  });
});

it("a stalled stream is noticed when the page becomes visible", async () => {
  const { port } = await server();
  const bad = await proxy(port);
  let changed: (what: "visible") => void = () => {};
  const environment = {
    isOnline: () => true,
    isVisible: () => true,
    watch: (listener: (what: "visible") => void) => ((changed = listener), () => {}),
  };
  const client = new OutlastClient({ baseUrl: bad.url, ...transports[1]![1], environment });
  const conversation = watch(client.newConversation());
  await conversation.send("Tell me something in 120 words");
  await until(
    "words",
    () => Object.values(conversation.snapshot().view?.overlays ?? {}).join("").length > 50,
  );
  bad.stall();
  const at = view(conversation).lastSeq;
  const now = Date.now;
  Date.now = () => now() + 60_000;
  changed("visible");
  Date.now = now;
  await until("it continues", () => view(conversation).lastSeq > at + 10);
});

it("after a crash that lost text, a conversation shows what is left and not what was seen", async () => {
  const home = await server({ OUTLAST_DURABILITY__MODE: "boundary" });
  const client = new OutlastClient({ baseUrl: home.url });
  const conversation = watch(client.newConversation());
  await conversation.send("Tell me something in 80 words");
  const words = (): string => Object.values(conversation.snapshot().view?.overlays ?? {}).join("");
  await until("some words", () => words().length > 100);
  await home.kill();
  await home.restart();
  expect(await until("the end", ended(conversation))).toMatchObject({ status: "completed" });
  await agreed(client, conversation);
});
