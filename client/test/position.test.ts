import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { OutlastError } from "../src/index.js";
import { answering, exchange, OFFERS, problem, scene, settled, tabs, VIEW } from "./fakes.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("the last position", () => {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };

  it("survives reloads: stored at each generation, and when the page is hidden", async () => {
    const { client, transport, device } = scene(() => new Response(null, { status: 204 }), { storage });
    client.conversation("conv_1").subscribe(() => {});
    await settled();
    transport.show(VIEW);
    const events = exchange(1, "a", "hello", ["one", "two"]);
    transport.say(...events.slice(0, 4));
    const reloaded = (): unknown => scene(undefined, { storage }).client.lastPosition();
    expect(reloaded()).toMatchObject({ conversationId: "conv_1", generationId: "gen_of_a" });
    transport.say(...events.slice(4));
    device.become("hidden");
    expect(reloaded()).toEqual({ conversationId: "conv_1", generationId: "gen_of_a", seq: 8 });
    await client.deleteConversation("conv_1");
    expect(reloaded()).toBeNull();
  });

  it("is removed when the conversation is deleted, by anybody", async () => {
    const channel = tabs();
    const { client, transport } = scene(undefined, { storage, channel });
    client.conversation("conv_1").subscribe(() => {});
    await settled();
    transport.show(VIEW);
    const reloaded = (): unknown => scene(undefined, { storage }).client.lastPosition();
    expect(reloaded()).not.toBeNull();
    transport.last.sink.closed({
      type: "refused",
      error: new OutlastError({ status: 404, code: "not_found", detail: "gone" }),
    });
    expect([client.lastPosition(), reloaded()]).toEqual([null, null]);
    const again = scene(undefined, { storage, channel });
    again.client.conversation("conv_1").subscribe(() => {});
    await settled();
    again.transport.show(VIEW);
    const other = scene(() => new Response(null, { status: 204 }), { channel });
    await other.client.deleteConversation("conv_1");
    expect([again.client.lastPosition(), reloaded()]).toEqual([null, null]);
  });

  it("belongs to the user that the server names, and to nobody else", async () => {
    kept.clear();
    const signedIn = (user: string): ReturnType<typeof scene> => {
      const fetch = answering(({ path }) =>
        path === "/v1/capabilities" ? { ...OFFERS, user } : problem(404, "not_found"),
      );
      return scene(undefined, { storage, fetch });
    };
    const ann = signedIn("ann:1");
    ann.client.conversation("conv_1").subscribe(() => {});
    // The first event may arrive before the server has named the user.
    ann.transport.show(VIEW);
    await ann.client.capabilities();
    expect([...kept.keys()]).toEqual(["outlast:ann%3A1:position:http://outlast.test"]);
    const positionOf = async (user: string): Promise<unknown> => {
      const { client } = signedIn(user);
      await client.capabilities();
      return client.lastPosition();
    };
    expect(await positionOf("ben")).toBeNull();
    expect(await positionOf("ann:1")).toMatchObject({ conversationId: "conv_1" });
  });

  it("is not stored where storage is forbidden, full or broken", async () => {
    const forbidden = () => {
      throw new Error("forbidden");
    };
    const { client, transport, device } = scene(undefined, {
      storage: { getItem: forbidden, setItem: forbidden, removeItem: forbidden },
    });
    client.conversation("conv_1").subscribe(() => {});
    await settled();
    transport.show(VIEW);
    device.become("hidden");
    expect(client.lastPosition()).toMatchObject({ conversationId: "conv_1" });
    const strange = scene(undefined, { storage: { ...storage, getItem: () => "{" } });
    expect(strange.client.lastPosition()).toBeNull();
  });
});
