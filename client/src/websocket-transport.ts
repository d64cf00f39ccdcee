/** The WebSocket of a conversation. Browsers allow many more of these than of requests. */

import { parseEvent } from "./event.js";
import type { Sink, Target, Transport } from "./transport.js";

/**
 * The server's pings do not reach page code, so a page cannot tell a quiet connection from a dead one. After this
 * much silence it sends a message; any reply shows that the server is there.
 */
export const PROBE_MS = 15_000;

/** The part of a WebSocket that is used here. Browsers, Node 22 and the package `ws` have it. */
export interface SocketLike {
  onopen: ((event: never) => unknown) | null;
  onmessage: ((event: never) => unknown) | null;
  onclose: ((event: never) => unknown) | null;
  onerror: ((event: never) => unknown) | null;
  send(text: string): void;
  close(): void;
}

export type SocketClass = new (url: string) => SocketLike;

export interface WebSocketOptions {
  readonly url: (path: string) => string;
  readonly WebSocket: SocketClass;
}

export function webSocketTransport(options: WebSocketOptions): Transport {
  return {
    scarce: false,
    open: (target, sink) => dial(options, target, sink),
  };
}

function dial(options: WebSocketOptions, target: Target, sink: Sink): () => void {
  const socket = new options.WebSocket(options.url(`${target.path}/ws`).replace(/^http/, "ws"));
  let probe: ReturnType<typeof setTimeout> | undefined;
  const listen = (): void => {
    clearTimeout(probe);
    probe = setTimeout(() => {
      // Any reply shows that the server is there, and replies are not part of the log.
      socket.send('{"type":"ping"}');
      listen();
    }, PROBE_MS);
  };
  socket.onopen = () => {
    const payload = target.after === null ? {} : { lastSeq: target.after };
    socket.send(JSON.stringify({ type: "hello", payload }));
    listen();
    sink.opened();
  };
  socket.onmessage = ({ data }: { data: unknown }) => {
    listen();
    const event = parseEvent(String(data));
    // Replies to frames have no position.
    if (event === null) sink.alive();
    else sink.events([event]);
  };
  // A close follows every error, but the package `ws` throws if there is no handler.
  socket.onerror = () => {};
  socket.onclose = () => {
    clearTimeout(probe);
    sink.closed({ type: "lost", detail: "the connection was lost" });
  };
  return () => {
    clearTimeout(probe);
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  };
}
