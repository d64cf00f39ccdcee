// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { surroundings } from "../src/environment.js";
import { OutlastClient } from "../src/index.js";
import { oncePerFrame } from "../src/store.js";
import { answering, exchange, FakeTransport, OFFERS, settled, VIEW } from "./fakes.js";

let visibility: DocumentVisibilityState;
beforeEach(() => {
  visibility = "visible";
  vi.spyOn(document, "visibilityState", "get").mockImplementation(() => visibility);
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

describe("a page", () => {
  it("reports when it is hidden, shown, frozen and thawed, and when the device loses its network", () => {
    const said: string[] = [];
    const stop = surroundings.watch((what) => said.push(what));
    visibility = "hidden";
    document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    visibility = "visible";
    document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    for (const name of ["pagehide", "pageshow", "offline", "online"]) window.dispatchEvent(new Event(name));
    expect(said).toEqual(["hidden", "visible", "hidden", "visible", "offline", "online"]);
    stop();
    window.dispatchEvent(new Event("online"));
    expect(said).toHaveLength(6);
  });

  it("calls its listeners once per frame, and without frames while it is hidden", async () => {
    const frames: FrameRequestCallback[] = [];
    const cancelled: number[] = [];
    vi.stubGlobal("requestAnimationFrame", (frame: FrameRequestCallback) => frames.push(frame));
    vi.stubGlobal("cancelAnimationFrame", (frame: number) => cancelled.push(frame));
    let flushed = 0;
    oncePerFrame(() => (flushed += 1));
    await settled();
    expect(flushed).toBe(0);
    frames[0]?.(0);
    expect(flushed).toBe(1);
    visibility = "hidden";
    oncePerFrame(() => (flushed += 1));
    vi.advanceTimersByTime(1_000);
    expect(flushed).toBeGreaterThan(1);
    // Frames that were missed do not pile up until the page is visible again.
    expect(cancelled).toEqual([1, 2]);
    vi.unstubAllGlobals();
  });

  it("renders at most once per frame, however fast the text arrives", async () => {
    const frames: FrameRequestCallback[] = [];
    vi.stubGlobal("requestAnimationFrame", (frame: FrameRequestCallback) => frames.push(frame));
    const transport = new FakeTransport();
    const client = new OutlastClient({
      baseUrl: "http://outlast.test",
      fetch: answering(() => OFFERS),
      transport,
    });
    const conversation = client.conversation("conv_1");
    let told = 0;
    conversation.subscribe(() => (told += 1));
    await settled();
    transport.show(VIEW);
    for (const event of exchange(1, "a", "hello", Array<string>(1_000).fill("word "))) transport.say(event);
    frames.splice(0).forEach((frame) => frame(0));
    expect(told).toBe(1);
    expect(conversation.snapshot().view?.messages).toHaveLength(2);
    vi.advanceTimersByTime(1_000);
    expect(told).toBe(1);
    expect(localStorage.getItem("outlast:local:position:http://outlast.test")).toContain("gen_of_a");
    conversation.close();
    vi.unstubAllGlobals();
  });
});
