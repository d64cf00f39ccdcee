/**
 * The rules of staying connected, as a pure function: no clock, no chance, no network. The follower
 * carries out the effects and reports what comes of them.
 */

import type { OutlastError } from "./problem.js";

/** The server speaks every 15 s. A stream that has been silent for this long is dead. */
export const SILENCE_LIMIT_MS = 40_000;
/** Silence after which a stream is not trusted when somebody comes back to look at it. */
export const SUSPECT_MS = 20_000;
/** A connection that does not open in this time is given up. */
export const CONNECT_LIMIT_MS = 10_000;
/** Missed events arrive in a burst. There is no mark at its end, so this much is allowed for it. */
export const CATCH_UP_MS = 400;
/** A connection that held this long, or brought events, was a good one: the next failure is the first again. */
export const HEALTHY_AFTER_MS = 5_000;
/** The first wait is at most this, and doubles. */
export const RETRY_BASE_MS = 500;
/** No wait is longer, unless the server asks for it. */
export const RETRY_CAP_MS = 20_000;
/** No wait is longer at all. */
export const RETRY_AFTER_CAP_MS = 120_000;
/** A page that has been hidden for this long gives its stream back. */
export const HIDDEN_GRACE_MS = 60_000;
/** A hidden page looks in this often: a generation that nobody follows for 30 minutes is cancelled. */
export const PEEK_MS = 600_000;

/** How the connection to a conversation stands, and if it does not, why. */
export type Connection =
  /** There is nothing to connect to yet, or nobody listens. */
  | { readonly type: "idle" }
  | { readonly type: "connecting" }
  /** Connected; what was missed is coming in. */
  | { readonly type: "catching_up" }
  | { readonly type: "live" }
  /** Not connected. Tries again by itself, `delayMs` after it began to wait. */
  | {
      readonly type: "waiting";
      readonly because: "hidden" | "lost" | "refused";
      /** For a person. */
      readonly reason: string;
      readonly delayMs: number;
    }
  /** The device says that it has no network. Tries again when it has, and now and then in between. */
  | { readonly type: "offline"; readonly reason: string; readonly delayMs: number }
  /** Over. `error` says why if it was refused for good. */
  | { readonly type: "ended"; readonly error: OutlastError | null };

export interface Machine {
  readonly connection: Connection;
  /** Tries that failed since the last healthy connection. */
  readonly failures: number;
  readonly online: boolean;
  readonly visible: boolean;
  /** The newest connection. What older ones still report is stale. */
  readonly number: number;
}

/** Why a connection closed. */
export type Why =
  | { readonly type: "lost"; readonly detail: string }
  /** Positions were missing or came twice. */
  | { readonly type: "gap"; readonly detail: string }
  | { readonly type: "refused"; readonly error: OutlastError };

/** What arrived: a sign of life, events of the log, or a snapshot, which leaves nothing to catch up with. */
export type Heard = "nothing" | "events" | "snapshot";

export type Timer = "retry" | "silence" | "settle" | "healthy" | "release";

export type Input =
  | { readonly type: "opened"; readonly number: number }
  | { readonly type: "heard"; readonly number: number; readonly what: Heard }
  | { readonly type: "closed"; readonly number: number; readonly why: Why }
  /** A timer rings under its own name. */
  | { readonly type: Timer }
  | { readonly type: "online" }
  | { readonly type: "offline" }
  /** Somebody looks: visible again, or back from the page cache. */
  | { readonly type: "visible"; readonly silentMs: number }
  | { readonly type: "hidden" }
  /** There is news: do not wait. */
  | { readonly type: "wake" }
  /** A person says: try again, whatever you think. */
  | { readonly type: "restart" }
  | { readonly type: "stop" };

export type Effect =
  | { readonly type: "connect"; readonly number: number }
  /** There may be none. No timer that was set before rings any more. */
  | { readonly type: "disconnect" }
  /** The position is of no use: begin with a snapshot. */
  | { readonly type: "forget" }
  /** Rings once, in place of what was set under this name before. */
  | { readonly type: "set"; readonly timer: Timer; readonly delayMs: number };

export interface Surroundings {
  /** From 0 up to, but not including, 1. */
  readonly chance: number;
  /** Whether a hidden page keeps its stream: something is under way, and connections are not scarce. */
  readonly keep: boolean;
  /** Whether what was handed out cannot be taken back, so that there is no beginning anew. */
  readonly final: boolean;
}

export interface Step {
  readonly machine: Machine;
  readonly effects: readonly Effect[];
}

/** The first step: connect, whatever the device says about its network. Loopback needs none. */
export function begin(around: { readonly online: boolean; readonly visible: boolean }): Step {
  return connect({ connection: { type: "idle" }, failures: 0, number: 0, ...around });
}

export function step(machine: Machine, input: Input, around: Surroundings): Step {
  if (machine.connection.type === "ended" && input.type !== "restart") return stay(machine);
  if ("number" in input && !isCurrent(machine, input.number)) return stay(machine);
  switch (input.type) {
    case "opened":
      return opened(machine);
    case "heard":
      return heard(machine, input.what);
    case "closed":
      return closed(machine, input.why, around);
    case "retry":
      return connect(machine);
    case "silence":
      return wait(machine, around, SILENT);
    case "settle":
      return caughtUp(machine);
    case "healthy":
      return stay({ ...machine, failures: 0 });
    case "release":
      return release(machine, around);
    case "online":
      return cameOnline(machine);
    case "offline":
      // A connection that works is kept, whatever the device says; the next one that fails is offline.
      return stay({ ...machine, online: false });
    case "visible":
      return becameVisible({ ...machine, visible: true }, input.silentMs);
    case "hidden":
      return stay({ ...machine, visible: false }, [set("release", HIDDEN_GRACE_MS)]);
    case "wake":
      return isConnected(machine) || isPatient(machine) ? stay(machine) : connect(machine);
    case "restart":
      return connect({ ...machine, failures: 0 });
    case "stop":
      return end(machine, null);
  }
}

function stay(machine: Machine, effects: readonly Effect[] = []): Step {
  return { machine, effects };
}

function become(machine: Machine, connection: Connection, effects: readonly Effect[] = []): Step {
  return stay({ ...machine, connection }, effects);
}

function set(timer: Timer, delayMs: number): Effect {
  return { type: "set", timer, delayMs };
}

function isOpen({ connection: { type } }: Machine): boolean {
  return type === "catching_up" || type === "live";
}

function isConnected(machine: Machine): boolean {
  return isOpen(machine) || machine.connection.type === "connecting";
}

/** Whether this is the connection that counts. */
export function isCurrent(machine: Machine, number: number): boolean {
  return number === machine.number && isConnected(machine);
}

/** Whether it waits for a reason that no news changes: the server asked for it, or nobody looks. */
function isPatient({ connection, visible }: Machine): boolean {
  if (connection.type !== "waiting" || connection.because === "lost") return false;
  return connection.because === "refused" || !visible;
}

/** Before each change of the connection, so that there are never two, and nothing rings for one that is gone. */
const HANG_UP: Effect = { type: "disconnect" };

function connect(machine: Machine): Step {
  const number = machine.number + 1;
  const effects = [HANG_UP, set("silence", CONNECT_LIMIT_MS), { type: "connect", number } as const];
  return become({ ...machine, number }, { type: "connecting" }, effects);
}

function opened(machine: Machine): Step {
  return become(machine, { type: "catching_up" }, [
    set("silence", SILENCE_LIMIT_MS),
    set("settle", CATCH_UP_MS),
    set("healthy", HEALTHY_AFTER_MS),
    set("release", HIDDEN_GRACE_MS),
  ]);
}

function heard(machine: Machine, what: Heard): Step {
  const alive = [set("silence", SILENCE_LIMIT_MS)];
  // The log grew here, so that even a network that cuts every connection short leads to its end.
  if (what === "events") return stay({ ...machine, failures: 0 }, alive);
  return what === "snapshot" ? caughtUp(machine, alive) : stay(machine, alive);
}

function caughtUp(machine: Machine, effects: readonly Effect[] = []): Step {
  if (machine.connection.type !== "catching_up") return stay(machine, effects);
  return become(machine, { type: "live" }, effects);
}

function closed(machine: Machine, why: Why, around: Surroundings): Step {
  switch (why.type) {
    case "lost":
      return wait(machine, around, { reason: why.detail });
    case "gap":
      return wait(machine, around, { reason: why.detail, forget: !around.final });
    case "refused": {
      const { status, code, detail: reason, retryAfterMs } = why.error;
      const forget = code === "cursor_ahead" && !around.final;
      if (!forget && isPermanent(status)) return end(machine, why.error);
      return wait(machine, around, { because: "refused", reason, forget, atLeastMs: retryAfterMs ?? 0 });
    }
  }
}

/** Asking again would be answered the same. */
function isPermanent(status: number): boolean {
  return status >= 400 && status < 500 && ![408, 425, 429].includes(status);
}

interface Wait {
  readonly because?: "lost" | "refused";
  readonly reason: string;
  /** Whether the position is of no use. */
  readonly forget?: boolean;
  /** What the server asks for. */
  readonly atLeastMs?: number;
}

const SILENT: Wait = { reason: "the server does not answer" };

/** Full jitter: a thousand clients that lost the same server must not come back in the same moment. */
function wait(machine: Machine, { chance }: Surroundings, why: Wait): Step {
  const { because = "lost", reason, forget, atLeastMs = 0 } = why;
  const most = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** machine.failures);
  const delayMs = Math.round(Math.min(atLeastMs, RETRY_AFTER_CAP_MS) + chance * most);
  // What refuses can be reached, whatever the device says.
  const connection: Connection =
    machine.online || because === "refused"
      ? { type: "waiting", because, reason, delayMs }
      : { type: "offline", reason, delayMs };
  const effects = [HANG_UP, set("retry", delayMs)];
  if (forget) effects.push({ type: "forget" });
  return become({ ...machine, failures: machine.failures + 1 }, connection, effects);
}

/** A hidden page gives its connection back, so that many tabs do not starve the one that is looked at. */
function release(machine: Machine, around: Surroundings): Step {
  if (machine.visible || !isOpen(machine)) return stay(machine);
  if (around.keep) return stay(machine, [set("release", HIDDEN_GRACE_MS)]);
  const connection = {
    type: "waiting",
    because: "hidden",
    reason: "the page is hidden",
    delayMs: PEEK_MS,
  } as const;
  return become(machine, connection, [HANG_UP, set("retry", PEEK_MS)]);
}

function cameOnline(machine: Machine): Step {
  const next = { ...machine, online: true };
  // A connection from before the network was lost leads nowhere, and would say so only much later.
  const isFine = isConnected(machine) ? machine.online : isPatient(machine);
  return isFine ? stay(next) : connect(next);
}

function becameVisible(machine: Machine, silentMs: number): Step {
  // The device may have slept: whether an open connection still lives would show only much later.
  const isFine = isOpen(machine) ? silentMs < SUSPECT_MS : isConnected(machine) || isPatient(machine);
  return isFine ? stay(machine) : connect(machine);
}

function end(machine: Machine, error: OutlastError | null): Step {
  return become(machine, { type: "ended", error }, [HANG_UP]);
}
