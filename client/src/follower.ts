/**
 * Follows a log across lost connections: carries out the machine's effects, keeps the position, and passes on only
 * the next event in sequence.
 */

import type { Environment } from "./environment.js";
import type { OutlastEvent } from "./event.js";
import { begin, isCurrent, step } from "./machine.js";
import type { Connection, Effect, Input, Machine, Step, Timer } from "./machine.js";
import { OutlastError } from "./problem.js";
import type { Transport } from "./transport.js";

export interface FollowOptions {
  readonly transport: Transport;
  /** `/v1/conversations/{id}` or `/v1/generations/{id}`. */
  readonly path: string;
  /** Whether it contains every position, as a conversation does. Of a generation's, some belong to others. */
  readonly isDense: boolean;
  readonly after: number | null;
  readonly environment: Environment;
  /** Whether positions survive a crash of the server. If not, each connection starts with a snapshot. */
  readonly isExact: () => Promise<boolean>;
  readonly onEvents: (events: readonly OutlastEvent[]) => void;
  readonly onConnection: (connection: Connection) => void;
  /** Whether a generation runs, which a hidden page keeps following if it can. */
  readonly isBusy: () => boolean;
}

/** The same refusal as the server's for a log that has become shorter. */
const LOST = new OutlastError({
  status: 409,
  code: "cursor_ahead",
  detail: "the server lost events that were already read",
});

export class Follower {
  readonly #options: FollowOptions;
  readonly #timers = new Map<Timer, ReturnType<typeof setTimeout>>();
  readonly #unwatch: () => void;
  #machine: Machine;
  #position: number | null;
  /** The last event of a stream that cannot be restarted. A reconnect asks for it again, as `#proof`. */
  #last: OutlastEvent | null = null;
  /** If another event is in its place, the log is not the one that was read. */
  #proof: OutlastEvent | null = null;
  #close: () => void = () => {};
  #heardAt = 0;

  constructor(options: FollowOptions) {
    this.#options = options;
    this.#position = options.after;
    const { environment } = options;
    const first = begin({ online: environment.isOnline(), visible: environment.isVisible() });
    this.#machine = first.machine;
    this.#unwatch = environment.watch((what) => {
      if (what === "visible") this.#say({ type: "visible", silentMs: Date.now() - this.#heardAt });
      else this.#say({ type: what });
    });
    this.#obey(first);
  }

  get connection(): Connection {
    return this.#machine.connection;
  }

  /** There is news, so do not wait for the next try. */
  wake(): void {
    this.#say({ type: "wake" });
  }

  /** Connects again, even after a refusal. */
  restart(): void {
    this.#say({ type: "restart" });
  }

  stop(): void {
    this.#say({ type: "stop" });
    this.#unwatch();
  }

  #say(input: Input): void {
    const { isBusy, transport, isDense } = this.#options;
    const keep = isBusy() && !transport.scarce;
    this.#obey(step(this.#machine, input, { chance: Math.random(), keep, final: !isDense }));
  }

  #obey({ machine, effects }: Step): void {
    const changed = machine.connection !== this.#machine.connection;
    this.#machine = machine;
    for (const effect of effects) this.#carryOut(effect);
    if (changed) this.#options.onConnection(machine.connection);
  }

  #carryOut(effect: Effect): void {
    switch (effect.type) {
      case "connect":
        void this.#connect(effect.number);
        break;
      case "disconnect":
        this.#close();
        this.#timers.forEach((timer) => clearTimeout(timer));
        break;
      case "forget":
        this.#position = null;
        break;
      case "set":
        clearTimeout(this.#timers.get(effect.timer));
        this.#timers.set(
          effect.timer,
          setTimeout(() => this.#say({ type: effect.timer }), effect.delayMs),
        );
        break;
    }
  }

  async #connect(number: number): Promise<void> {
    const { path, transport } = this.#options;
    this.#heardAt = Date.now();
    this.#close = () => {};
    try {
      // Only a reconnect has a position, and it must know whether it can trust it.
      if (this.#position !== null && !(await this.#options.isExact())) this.#position = null;
      if (!isCurrent(this.#machine, number)) return;
      this.#proof = this.#last;
      this.#close = transport.open(
        { path, after: this.#last ? this.#last.seq - 1 : this.#position },
        {
          opened: () => this.#say({ type: "opened", number }),
          alive: () => this.#take(number, []),
          events: (events) => this.#take(number, events),
          closed: (why) => this.#say({ type: "closed", number, why }),
        },
      );
    } catch {
      this.#say({ type: "closed", number, why: { type: "lost", detail: "could not reach the server" } });
    }
  }

  /** Passes on events in sequence. At the first one out of sequence the connection is given up. */
  #take(number: number, events: readonly OutlastEvent[]): void {
    // Events of a connection that was given up are ignored.
    if (!isCurrent(this.#machine, number)) return;
    this.#heardAt = Date.now();
    const [first] = events;
    if (this.#proof && first && first.type !== "snapshot") {
      if (first.ts !== this.#proof.ts)
        return this.#say({ type: "closed", number, why: { type: "refused", error: LOST } });
      this.#proof = null;
      events = events.slice(1);
    }
    const wrong = events.findIndex((event) => !this.#isNext(event));
    const good = wrong < 0 ? events : events.slice(0, wrong);
    const isSnapshot = good[0]?.type === "snapshot";
    this.#say({ type: "heard", number, what: isSnapshot ? "snapshot" : good[0] ? "events" : "nothing" });
    if (good[0]) this.#options.onEvents(good);
    const last = good.at(-1);
    // A snapshot is not in the log, so the next connection cannot ask for it again.
    if (last && !this.#options.isDense) this.#last = last.type === "snapshot" ? null : last;
    const event = events[wrong];
    if (event === undefined) return;
    const detail = `received position ${event.seq} after ${this.#position}`;
    this.#say({ type: "closed", number, why: { type: "gap", detail } });
  }

  #isNext({ type, seq }: OutlastEvent): boolean {
    const last = this.#position;
    const follows = this.#options.isDense ? last !== null && seq === last + 1 : seq > (last ?? 0);
    if (!follows && type !== "snapshot") return false;
    this.#position = seq;
    return true;
  }
}
