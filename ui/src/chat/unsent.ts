/**
 * Messages that were sent but not confirmed, stored apart from drafts, each under its request id. If the page that
 * sent one is gone, the next page sends it again under the same id, so that the server accepts it only once. A
 * message that was shown as failed is only shown again: the person may no longer want to send it.
 */

import { readStored, store, storedNames } from "../shell/stored";

export interface Unsent {
  readonly requestId: string;
  /** Null for the first message of a new conversation. */
  readonly conversationId: string | null;
  readonly text: string;
  readonly whenBusy: "queue" | "interrupt";
  readonly model: string | null;
  /** Whether the person was told that it was not sent. */
  readonly hasFailed: boolean;
  /** The page that sends it. */
  readonly page: string;
}

const PREFIX = "unsent:";
const LOCK = "outlast:unsent:";
/** A page that was just closed may still hold its lock. */
const LOOK_AGAIN_MS = 1_000;

const page = newRequestId();
const mine = new Set<string>();
let release: (() => void) | null = null;

export function newRequestId(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}

/** Stores a message that this page sends. */
export function keepUnsent(user: string, message: Unsent): void {
  mine.add(message.requestId);
  store(user, PREFIX + message.requestId, JSON.stringify({ ...message, page }));
  hold();
}

export function dropUnsent(user: string, requestId: string): void {
  mine.delete(requestId);
  store(user, PREFIX + requestId, null);
  if (mine.size > 0) return;
  release?.();
  release = null;
}

/** Drops the messages of a conversation that was deleted. */
export function forgetUnsent(user: string, conversationId: string): void {
  for (const message of read(user))
    if (message.conversationId === conversationId) dropUnsent(user, message.requestId);
}

/** Takes over the messages of a conversation whose page is gone. */
export async function takeUnsent(
  user: string,
  conversationId: string | null,
  signal: AbortSignal,
): Promise<readonly Unsent[]> {
  const left = (): readonly Unsent[] =>
    read(user).filter((one) => one.conversationId === conversationId && !mine.has(one.requestId));
  if (left().length === 0) return [];
  let taken = await orphaned(left());
  if (taken.length < left().length) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
    taken = await orphaned(left());
  }
  if (signal.aborted) return [];
  for (const message of taken) keepUnsent(user, message);
  return taken;
}

async function orphaned(messages: readonly Unsent[]): Promise<readonly Unsent[]> {
  // Without locks two pages may send the same message. The server accepts it once.
  if (!("locks" in navigator)) return messages;
  const { held = [] } = await navigator.locks.query();
  return messages.filter((message) => !held.some(({ name }) => name === LOCK + message.page));
}

/** Holds a lock while there is something to send, so that other pages know that this one is still open. */
function hold(): void {
  if (release !== null || !("locks" in navigator)) return;
  const held = new Promise<void>((resolve) => (release = resolve));
  navigator.locks.request(LOCK + page, () => held).catch(() => {});
}

function read(user: string): readonly Unsent[] {
  return storedNames(user, PREFIX).flatMap((name) => {
    const message = parse(readStored(user, name));
    return message === null ? [] : [message];
  });
}

function parse(text: string | null): Unsent | null {
  try {
    const value: unknown = JSON.parse(text ?? "null");
    return isUnsent(value) ? value : null;
  } catch {
    return null;
  }
}

function isUnsent(value: unknown): value is Unsent {
  return typeof value === "object" && value !== null && "requestId" in value && "text" in value;
}
