/** What the tests with a real server share. Everything they start is stopped after each test. */

import { afterEach, expect } from "vitest";
import WebSocket from "ws";
import type { ClientOptions, Conversation, OutlastClient, SocketClass, View } from "../../src/index.js";
import { startServer, until } from "./outlast.js";
import type { Server } from "./outlast.js";
import { startProxy } from "./proxy.js";
import type { Proxy } from "./proxy.js";

export const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanup.splice(0).reverse()) await clean();
});

export async function server(settings?: Readonly<Record<string, string>>): Promise<Server> {
  const server = await startServer(settings);
  cleanup.push(() => server.end());
  return server;
}

export async function proxy(port: number): Promise<Proxy> {
  const proxy = await startProxy(port);
  cleanup.push(() => proxy.close());
  return proxy;
}

export function watch(conversation: Conversation): Conversation {
  const stop = conversation.subscribe(() => {});
  cleanup.push(() => (stop(), conversation.close()));
  return conversation;
}

export const view = (conversation: Conversation): View => conversation.snapshot().view!;
export const ended = (conversation: Conversation) => () => {
  const { lastEnd, isGenerating } = conversation.snapshot();
  return isGenerating ? null : lastEnd;
};

/** The server's view, once it is at the same position as ours. */
export async function agreed(client: OutlastClient, conversation: Conversation): Promise<void> {
  const theirs = await until("both are at the same position", async () => {
    const theirs = await client.getConversation(conversation.id!);
    return theirs.lastSeq === view(conversation).lastSeq && theirs.conversation.title !== null
      ? theirs
      : null;
  });
  expect(view(conversation)).toEqual(theirs);
}

export const transports: readonly [string, ClientOptions][] = [
  ["Server-Sent Events", { transport: "sse" }],
  ["WebSocket", { transport: "websocket", WebSocket: WebSocket as unknown as SocketClass }],
];
