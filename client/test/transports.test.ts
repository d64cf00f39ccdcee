import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { eitherTransport, SOCKET_LIMIT_MS } from "../src/either-transport.js";
import type { OutlastEvent, Sink } from "../src/index.js";
import { Http } from "../src/http.js";
import { sseTransport } from "../src/sse-transport.js";
import { PROBE_MS, webSocketTransport } from "../src/websocket-transport.js";
import { answering, FakeDevice, FakeTransport, problem, settled } from "./fakes.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function recorder(): { said: unknown[]; sink: Sink } {
  const said: unknown[] = [];
  return {
    said,
    sink: {
      opened: () => said.push("opened"),
      alive: () => said.push("alive"),
      events: (events) => said.push(...events.map(({ seq }) => seq)),
      closed: (why) => said.push(why.type),
    },
  };
}

const event = (seq: number): string =>
  JSON.stringify({ seq, type: "usage", payload: {}, ts: "" } satisfies Partial<OutlastEvent> | object);
const http = (fetch: typeof globalThis.fetch): Http =>
  new Http({
    baseUrl: "http://outlast.test",
    fetch,
    headers: async () => ({ authorization: "Bearer t" }),
    environment: new FakeDevice(),
  });

describe("Server-Sent Events", () => {
  it("are requested after a position, with the headers, and read as they arrive", async () => {
    const asked: unknown[] = [];
    let push: (text: string) => void = () => {};
    let end: () => void = () => {};
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        push = (text) => controller.enqueue(new TextEncoder().encode(text));
        end = () => controller.close();
      },
    });
    const fetch: typeof globalThis.fetch = async (input, init) => {
      asked.push(String(input), init?.headers);
      return new Response(body, { headers: { "content-type": "text/event-stream" } });
    };
    const { said, sink } = recorder();
    sseTransport(http(fetch)).open({ path: "/v1/conversations/c", after: 5 }, sink);
    await settled();
    expect(asked).toEqual([
      "http://outlast.test/v1/conversations/c/events?after=5",
      { accept: "text/event-stream", authorization: "Bearer t" },
    ]);
    for (const text of [`data: ${event(6)}\n\ndata: `, `${event(7)}\n`, "\n", ": keep-alive\n\n"]) {
      push(text);
      await settled();
    }
    end();
    await settled();
    expect(said).toEqual(["opened", 6, "alive", 7, "alive", "lost"]);
  });

  it("that are refused say why, and a response that is something else is an error", async () => {
    const answers: [Response, string][] = [
      [problem(404, "not_found"), "refused"],
      [new Response("<html>", { headers: { "content-type": "text/html" } }), "lost"],
      [new Response("data: {}\n\n", { headers: { "content-type": "text/event-stream" } }), "lost"],
    ];
    for (const [answer, why] of answers) {
      const { said, sink } = recorder();
      sseTransport(http(answering(() => answer))).open({ path: "/x", after: null }, sink);
      await settled();
      expect(said.at(-1)).toBe(why);
    }
  });
});

class FakeSocket {
  static all: FakeSocket[] = [];
  onopen: ((event: never) => unknown) | null = null;
  onmessage: ((event: never) => unknown) | null = null;
  onclose: ((event: never) => unknown) | null = null;
  onerror: ((event: never) => unknown) | null = null;
  readonly sent: unknown[] = [];
  isClosed = false;

  constructor(readonly url: string) {
    FakeSocket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.isClosed = true;
  }

  say(data: string): void {
    this.onmessage?.({ data } as never);
  }
}

describe("a WebSocket", () => {
  const dial = (after: number | null) => {
    const { said, sink } = recorder();
    const close = webSocketTransport({
      url: (path) => `https://outlast.test${path}`,
      WebSocket: FakeSocket,
    }).open({ path: "/v1/conversations/c", after }, sink);
    const socket = FakeSocket.all.at(-1)!;
    return { said, close, socket };
  };

  it("says hello with its position, and tells events from replies", () => {
    const { said, socket } = dial(5);
    expect(socket.url).toBe("wss://outlast.test/v1/conversations/c/ws");
    socket.onopen?.({} as never);
    expect(socket.sent).toEqual([{ type: "hello", payload: { lastSeq: 5 } }]);
    socket.say(event(6));
    socket.say('{"type":"error","requestId":null,"payload":{"status":422}}');
    socket.onclose?.({} as never);
    expect(said).toEqual(["opened", 6, "alive", "lost"]);
    expect(dial(null).socket.sent).toEqual([]);
  });

  it("sends a ping after a silence", () => {
    const { socket, close } = dial(null);
    socket.onopen?.({} as never);
    vi.advanceTimersByTime(PROBE_MS - 1);
    socket.say(event(1));
    vi.advanceTimersByTime(PROBE_MS - 1);
    expect(socket.sent).toHaveLength(1);
    vi.advanceTimersByTime(1);
    expect(socket.sent.at(-1)).toEqual({ type: "ping" });
    close();
    vi.advanceTimersByTime(PROBE_MS * 3);
    expect(socket.sent).toHaveLength(2);
    expect(socket.isClosed).toBe(true);
  });
});

describe("either way", () => {
  const target = { path: "/x", after: null };

  it("falls back at once when the first does not open, and for good when that happens again", () => {
    const [first, second] = [new FakeTransport(), new FakeTransport()];
    second.scarce = true;
    const either = eitherTransport(first, second);
    for (const turn of [1, 2]) {
      const { said, sink } = recorder();
      either.open(target, sink);
      expect(either.scarce).toBe(false);
      first.lose();
      second.last.sink.opened();
      expect([said, second.lines.length, either.scarce]).toEqual([["opened"], turn, true]);
    }
    either.open(target, recorder().sink);
    expect([first.lines.length, second.lines.length]).toEqual([2, 3]);
  });

  it("falls back when the first cannot be created", () => {
    const second = new FakeTransport();
    const first = {
      scarce: false,
      open() {
        throw new Error("forbidden here");
      },
    };
    const { said, sink } = recorder();
    const close = eitherTransport(first, second).open(target, sink);
    second.last.sink.opened();
    expect(said).toEqual(["opened"]);
    vi.advanceTimersByTime(SOCKET_LIMIT_MS);
    expect(second.lines).toHaveLength(1);
    close();
    expect(second.openLines).toBe(0);
  });

  it("learns nothing from a server that refuses both, or from a connection that was open", () => {
    const [first, second] = [new FakeTransport(), new FakeTransport()];
    const either = eitherTransport(first, second);
    for (let turn = 0; turn < 5; turn += 1) {
      const { said, sink } = recorder();
      either.open(target, sink);
      first.lose();
      second.lose();
      expect(said).toEqual(["lost"]);
    }
    const { said, sink } = recorder();
    either.open(target, sink);
    first.last.sink.opened();
    first.lose();
    expect(said).toEqual(["opened", "lost"]);
    expect([first.lines.length, second.lines.length]).toEqual([6, 5]);
  });

  it("does not wait for a first connection that gets no reply, and closes the open one", () => {
    const [first, second] = [new FakeTransport(), new FakeTransport()];
    const close = eitherTransport(first, second).open(target, recorder().sink);
    vi.advanceTimersByTime(SOCKET_LIMIT_MS);
    expect([first.openLines, second.openLines]).toEqual([0, 1]);
    close();
    expect(second.openLines).toBe(0);
  });
});
