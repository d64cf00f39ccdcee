/**
 * Messages that were sent and are not known to have arrived, kept apart from drafts and each under its name. A page
 * that is opened after the one that sent them is gone sends them again: if one did arrive, the server knows its name
 * and nothing is doubled. One that was seen to fail is only shown again: by then nobody may want it any more.
 */

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

const PREFIX = "outlast:unsent:";
/** A page that was left a moment ago may not have let go of its lock yet. */
const LOOK_AGAIN_MS = 1_000;

const page = newName();
const mine = new Set<string>();
let release: (() => void) | null = null;

/** A name that nobody else makes up. */
export function newName(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}

/** Makes it this page's. */
export function keepUnsent(message: Unsent): void {
  mine.add(message.requestId);
  allowed(() => localStorage.setItem(PREFIX + message.requestId, JSON.stringify({ ...message, page })));
  hold();
}

export function dropUnsent(requestId: string): void {
  mine.delete(requestId);
  allowed(() => localStorage.removeItem(PREFIX + requestId));
  if (mine.size > 0) return;
  release?.();
  release = null;
}

/** Forgets what was for a conversation that is gone. */
export function forgetUnsent(conversationId: string): void {
  for (const message of read()) if (message.conversationId === conversationId) dropUnsent(message.requestId);
}

/** Those for a conversation whose page is gone. They are this page's from now on. */
export async function takeUnsent(
  conversationId: string | null,
  signal: AbortSignal,
): Promise<readonly Unsent[]> {
  const left = (): readonly Unsent[] =>
    read().filter((one) => one.conversationId === conversationId && !mine.has(one.requestId));
  if (left().length === 0) return [];
  let taken = await gone(left());
  if (taken.length < left().length) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
    taken = await gone(left());
  }
  if (signal.aborted) return [];
  for (const message of taken) keepUnsent(message);
  return taken;
}

async function gone(messages: readonly Unsent[]): Promise<readonly Unsent[]> {
  // Where there are no locks, two pages may send the same message. The server takes it once.
  if (!("locks" in navigator)) return messages;
  const { held = [] } = await navigator.locks.query();
  return messages.filter((message) => !held.some(({ name }) => name === PREFIX + message.page));
}

/** Shows other pages that this one is still there, for as long as it has something to send. */
function hold(): void {
  if (release !== null || !("locks" in navigator)) return;
  const held = new Promise<void>((resolve) => (release = resolve));
  navigator.locks.request(PREFIX + page, () => held).catch(() => {});
}

function read(): readonly Unsent[] {
  const found: Unsent[] = [];
  allowed(() => {
    for (const key of Object.keys(localStorage)) {
      if (!key.startsWith(PREFIX)) continue;
      const message: unknown = JSON.parse(localStorage.getItem(key) ?? "null");
      if (isUnsent(message)) found.push(message);
    }
  });
  return found;
}

function isUnsent(value: unknown): value is Unsent {
  return typeof value === "object" && value !== null && "requestId" in value && "text" in value;
}

/** A storage may be full or forbidden: then a reload forgets. */
function allowed(action: () => void): void {
  try {
    action();
  } catch {
    // Nothing else depends on it.
  }
}
