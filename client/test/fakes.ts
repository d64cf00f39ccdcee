/** Fakes of the network, the device and the other tabs. */

import { emptyView, OutlastClient } from "../src/index.js";
import type {
  ChannelLike,
  ClientOptions,
  Environment,
  OutlastEvent,
  Sink,
  Target,
  Transport,
  View,
} from "../src/index.js";
import type { Change } from "../src/environment.js";

export interface Line {
  readonly target: Target;
  readonly sink: Sink;
  isOpen: boolean;
}

/** Connections that a test controls. */
export class FakeTransport implements Transport {
  scarce = false;
  readonly lines: Line[] = [];

  open(target: Target, sink: Sink): () => void {
    const line = { target, sink, isOpen: true };
    this.lines.push(line);
    return () => (line.isOpen = false);
  }

  get last(): Line {
    return this.lines.at(-1)!;
  }

  get openLines(): number {
    return this.lines.filter((line) => line.isOpen).length;
  }

  /** Opens the newest connection with a snapshot. */
  show(view: View): void {
    this.last.sink.opened();
    this.last.sink.events([snapshot(view)]);
  }

  say(...events: readonly OutlastEvent[]): void {
    this.last.sink.events(events);
  }

  lose(): void {
    this.last.isOpen = false;
    this.last.sink.closed({ type: "lost", detail: "the connection was lost" });
  }
}

export class FakeDevice implements Environment {
  online = true;
  visible = true;
  readonly #watchers = new Set<(what: Change) => void>();

  isOnline(): boolean {
    return this.online;
  }

  isVisible(): boolean {
    return this.visible;
  }

  watch(changed: (what: Change) => void): () => void {
    this.#watchers.add(changed);
    return () => this.#watchers.delete(changed);
  }

  become(what: Change): void {
    if (what === "online" || what === "offline") this.online = what === "online";
    else this.visible = what === "visible";
    for (const changed of [...this.#watchers]) changed(what);
  }
}

/** Channels between tabs. Like a real one, a channel does not receive its own messages. */
export function tabs(): () => ChannelLike {
  const all: ChannelLike[] = [];
  return () => {
    const channel: ChannelLike = {
      onmessage: null,
      postMessage(data) {
        for (const other of all) if (other !== channel) other.onmessage?.({ data } as MessageEvent);
      },
    };
    all.push(channel);
    return channel;
  };
}

type Answer = (request: {
  method: string;
  path: string;
  search: URLSearchParams;
  body: Record<string, unknown>;
  init: RequestInit;
}) => unknown;

/** A server that replies with what `answer` returns. A thrown error is a network error; a `Response` is sent as it is. */
export function answering(answer: Answer): typeof fetch {
  return async (input, init = {}) => {
    const { pathname, searchParams: search } = new URL(String(input));
    const body = typeof init.body === "string" ? (JSON.parse(init.body) as Record<string, unknown>) : {};
    const said = await answer({ method: init.method ?? "GET", path: pathname, search, body, init });
    init.signal?.throwIfAborted();
    return said instanceof Response ? said : Response.json(said);
  };
}

export function problem(status: number, code: string, extra: object = {}): Response {
  return Response.json(
    { type: "about:blank", title: code, status, detail: `this is ${code}`, code, ...extra },
    { status },
  );
}

export const OFFERS = { name: "outlast", version: "0", background: true, durability: "commit" };

/** The server's response to a start. */
export const started = (requestId: unknown) => ({
  generationId: `gen_of_${requestId}`,
  conversationId: "conv_1",
  messageId: `message_of_${requestId}`,
  status: "running",
});

export interface Scene {
  readonly client: OutlastClient;
  readonly transport: FakeTransport;
  readonly device: FakeDevice;
}

export function scene(answer: Answer = () => problem(404, "not_found"), options: ClientOptions = {}): Scene {
  const transport = new FakeTransport();
  const device = new FakeDevice();
  const fetch = answering((request) => (request.path === "/v1/capabilities" ? OFFERS : answer(request)));
  const client = new OutlastClient({
    baseUrl: "http://outlast.test",
    fetch,
    transport,
    environment: device,
    storage: null,
    schedule: queueMicrotask,
    ...options,
  });
  return { client, transport, device };
}

export function snapshot(view: View): OutlastEvent {
  return {
    seq: view.lastSeq,
    ts: view.conversation.updatedAt,
    generationId: null,
    requestId: null,
    type: "snapshot",
    payload: view,
  };
}

const ts = "2026-01-01T00:00:00.000Z";
export const VIEW = emptyView("conv_1", ts);

/** The events of a message and its answer, starting at a position. */
export function exchange(
  from: number,
  requestId: string,
  text: string,
  words: readonly string[],
): OutlastEvent[] {
  const generationId = `gen_of_${requestId}`;
  const messageId = `answer_of_${requestId}`;
  const message = {
    id: `message_of_${requestId}`,
    conversationId: "conv_1",
    generationId,
    role: "user" as const,
    content: text,
    parts: [{ type: "text" as const, text }],
    status: "complete" as const,
    errorMessage: null,
    seq: from,
    createdAt: ts,
  };
  const events = [
    { type: "message.added", payload: { message } },
    { type: "generation.queued", payload: { messageId: message.id, model: "default", digest: "d" } },
    { type: "chat.started", payload: { model: "default", attempt: 1 } },
    { type: "assistant.segment.started", payload: { messageId } },
    ...words.map((text) => ({ type: "chat.delta", payload: { messageId, text } })),
    { type: "assistant.segment.ended", payload: { messageId } },
    { type: "chat.done", payload: { finishReason: "stop" } },
  ];
  return events.map(
    (event, place) => ({ ...event, seq: from + place, ts, generationId, requestId }) as OutlastEvent,
  );
}

/** Lets pending promises settle. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 20; i += 1) await Promise.resolve();
}
