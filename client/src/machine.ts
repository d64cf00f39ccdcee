/**
 * The rules for staying connected, as a pure function: no clock, no randomness, no network. The follower carries out
 * the effects and reports the outcome.
 */

import type { OutlastError } from "./problem.js";

/** The server sends something every 15 s. A stream that is silent for this long is dead. */
export const SILENCE_LIMIT_MS = 40_000;
/** A stream that was silent for this long is replaced when the page becomes visible. */
export const SUSPECT_MS = 20_000;
/** The timeout for opening a connection. */
export const CONNECT_LIMIT_MS = 10_000;
/** Missed events arrive in a burst without an end marker. After this long we assume that it is over. */
export const CATCH_UP_MS = 400;
/** A connection that lasted this long, or delivered events, was healthy: it resets the count of failures. */
export const HEALTHY_AFTER_MS = 5_000;
/** The first delay is random, up to this. The bound doubles with each failure. */
export const RETRY_BASE_MS = 500;
/** The bound never exceeds this. What the server asks for is added. */
export const RETRY_CAP_MS = 20_000;
/** The longest delay that a server can ask for. */
export const RETRY_AFTER_CAP_MS = 120_000;
/** A page that was hidden for this long closes its stream, unless `keep` is set. */
export const HIDDEN_GRACE_MS = 60_000;
/** A hidden page connects this often, because a server cancels a generation that nobody follows, by default after
 * 30 minutes. */
export const PEEK_MS = 600_000;

/** The state of a connection, with the reason if there is none. */
export type Connection =
  /** There is nothing to connect to yet, or nobody subscribes. */
  | { readonly type: "idle" }
  | { readonly type: "connecting" }
  /** Connected; missed events are arriving. */
  | { readonly type: "catching_up" }
  | { readonly type: "live" }
  /** Not connected. The next try is `delayMs` after the state began. */
  | {
      readonly type: "waiting";
      readonly because: "hidden" | "lost" | "refused";
      /** Shown to a person. */
      readonly reason: string;
      readonly delayMs: number;
    }
  /** The device reports no network. Tries again when it is online, and occasionally before that. */
  | { readonly type: "offline"; readonly reason: string; readonly delayMs: number }
  /** Stopped, or refused for good: then `error` says why. */
  | { readonly type: "ended"; readonly error: OutlastError | null };

export interface Machine {
  readonly connection: Connection;
  /** Failed tries since the last healthy connection. */
  readonly failures: number;
  readonly online: boolean;
  readonly visible: boolean;
  /** The newest connection. Reports of older ones are stale. */
  readonly number: number;
}

/** Why a connection closed. */
export type Why =
  | { readonly type: "lost"; readonly detail: string }
  /** A position was missing or repeated. */
  | { readonly type: "gap"; readonly detail: string }
  | { readonly type: "refused"; readonly error: OutlastError };

/** What arrived: only a keep-alive, events of the log, or a snapshot, which replaces whatever was missed. */
export type Heard = "nothing" | "events" | "snapshot";

export type Timer = "retry" | "silence" | "settle" | "healthy" | "release";

export type Input =
  | { readonly type: "opened"; readonly number: number }
  | { readonly type: "heard"; readonly number: number; readonly what: Heard }
  | { readonly type: "closed"; readonly number: number; readonly why: Why }
  /** A timer fired: the type is its name. */
  | { readonly type: Timer }
  | { readonly type: "online" }
  | { readonly type: "offline" }
  /** The page is visible again, or back from the page cache. */
  | { readonly type: "visible"; readonly silentMs: number }
  | { readonly type: "hidden" }
  /** Something changed on the server: connect now instead of waiting. */
  | { readonly type: "wake" }
  /** A person asked to try again, whatever the state. */
  | { readonly type: "restart" }
  | { readonly type: "stop" };

export type Effect =
  | { readonly type: "connect"; readonly number: number }
  /** Closes the connection, if there is one, and clears all timers. */
  | { readonly type: "disconnect" }
  /** The position is useless: start with a snapshot. */
  | { readonly type: "forget" }
  /** Fires once, and replaces a timer of the same name. */
  | { readonly type: "set"; readonly timer: Timer; readonly delayMs: number };

export interface Surroundings {
  /** A random number from 0 up to, but not including, 1. */
  readonly chance: number;
  /** Whether a hidden page keeps its stream: a generation is running, and the browser has connections to
   * spare. */
  readonly keep: boolean;
  /** Whether events that were passed on cannot be taken back, so that starting over is impossible. */
  readonly final: boolean;
}

export interface Step {
  readonly machine: Machine;
  readonly effects: readonly Effect[];
}

/** The first step: connect, even if the device reports no network, because loopback needs none. */
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
      // A working connection is kept, whatever the device reports. The next failure is reported as offline.
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

/** Whether this is the current connection, and it has not been closed. */
export function isCurrent(machine: Machine, number: number): boolean {
  return number === machine.number && isConnected(machine);
}

/** Whether to keep waiting even if there is news: the server asked us to wait, or the page is hidden. */
function isPatient({ connection, visible }: Machine): boolean {
  if (connection.type !== "waiting" || connection.because === "lost") return false;
  return connection.because === "refused" || !visible;
}

/** Comes before each new connection, so that there are never two, and no timer of an old one fires. */
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
  // There was progress, so even on a network that cuts every connection the client reaches the end of the log.
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

/** A retry would be refused again. */
function isPermanent(status: number): boolean {
  return status >= 400 && status < 500 && ![408, 425, 429].includes(status);
}

interface Wait {
  readonly because?: "lost" | "refused";
  readonly reason: string;
  /** Whether the position is useless. */
  readonly forget?: boolean;
  /** The delay that the server asks for. */
  readonly atLeastMs?: number;
}

const SILENT: Wait = { reason: "the server did not respond" };

/** Full jitter: a thousand clients that lost the same server must not reconnect at the same time. */
function wait(machine: Machine, { chance }: Surroundings, why: Wait): Step {
  const { because = "lost", reason, forget, atLeastMs = 0 } = why;
  const most = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** machine.failures);
  const delayMs = Math.round(Math.min(atLeastMs, RETRY_AFTER_CAP_MS) + chance * most);
  // A server that refuses can be reached, whatever the device reports.
  const connection: Connection =
    machine.online || because === "refused"
      ? { type: "waiting", because, reason, delayMs }
      : { type: "offline", reason, delayMs };
  const effects = [HANG_UP, set("retry", delayMs)];
  if (forget) effects.push({ type: "forget" });
  return become({ ...machine, failures: machine.failures + 1 }, connection, effects);
}

/** A hidden page closes its connection, so that many tabs do not starve the visible one. */
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
  // A connection from before the network was lost is dead, and would time out only much later.
  const isFine = isConnected(machine) ? machine.online : isPatient(machine);
  return isFine ? stay(next) : connect(next);
}

function becameVisible(machine: Machine, silentMs: number): Step {
  // The device may have slept. A dead connection would time out only much later.
  const isFine = isOpen(machine) ? silentMs < SUSPECT_MS : isConnected(machine) || isPatient(machine);
  return isFine ? stay(machine) : connect(machine);
}

function end(machine: Machine, error: OutlastError | null): Step {
  return become(machine, { type: "ended", error }, [HANG_UP]);
}
