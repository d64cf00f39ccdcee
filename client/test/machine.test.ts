import fc from "fast-check";
import { describe, expect, it } from "vitest";
import * as limits from "../src/machine.js";
import { begin, step } from "../src/machine.js";
import type { Heard, Input, Machine, Step, Timer, Why } from "../src/machine.js";
import { OutlastError } from "../src/problem.js";

const refused = (status: number, code: string, retryAfterMs: number | null = null): Why => ({
  type: "refused",
  error: new OutlastError({ status, code, detail: code }, retryAfterMs),
});
const lost: Why = { type: "lost", detail: "the connection was lost" };

/** Carries out effects as the follower does, and fails on effects that contradict each other. */
class World {
  machine: Machine;
  open: number | null = null;
  opens = 0;
  forgets = 0;
  timers = new Map<Timer, number>();
  chance = 0.999;
  keep = false;
  final = false;

  constructor(first: Step = begin({ online: true, visible: true })) {
    this.machine = first.machine;
    this.obey(first);
  }

  say(input: Input): this {
    this.obey(step(this.machine, input, { chance: this.chance, keep: this.keep, final: this.final }));
    return this;
  }

  obey({ machine, effects }: Step): void {
    this.machine = machine;
    for (const effect of effects) {
      switch (effect.type) {
        case "connect":
          if (this.open !== null) throw new Error("two connections at once");
          this.open = effect.number;
          this.opens += 1;
          break;
        case "disconnect":
          this.open = null;
          this.timers.clear();
          break;
        case "forget":
          this.forgets += 1;
          break;
        case "set":
          this.timers.set(effect.timer, effect.delayMs);
          break;
      }
    }
  }

  opened(): this {
    return this.say({ type: "opened", number: this.machine.number });
  }

  heard(what: Heard): this {
    return this.say({ type: "heard", number: this.machine.number, what });
  }

  closed(why: Why): this {
    return this.say({ type: "closed", number: this.machine.number, why });
  }

  rings(timer: Timer): this {
    expect(this.timers.has(timer), `${timer} is set`).toBe(true);
    return this.ring(timer);
  }

  /** Does nothing if the timer is not set. */
  ring(timer: Timer): this {
    return this.timers.delete(timer) ? this.say({ type: timer }) : this;
  }

  get now(): string {
    return this.machine.connection.type;
  }
}

const live = (): World => new World().opened().heard("snapshot");

describe("a connection", () => {
  it("starts at once, even if the device reports no network", () => {
    expect(new World().now).toBe("connecting");
    expect(new World(begin({ online: false, visible: true })).now).toBe("connecting");
  });

  it("is live at a snapshot, or when the burst of missed events is over", () => {
    expect(new World().opened().now).toBe("catching_up");
    expect(live().now).toBe("live");
    expect(new World().opened().heard("events").now).toBe("catching_up");
    expect(new World().opened().heard("events").rings("settle").now).toBe("live");
  });

  it("that is lost says why, waits, and reconnects", () => {
    const world = live().closed(lost);
    expect(world.machine.connection).toMatchObject({ type: "waiting", because: "lost", reason: lost.detail });
    expect(world.rings("retry").now).toBe("connecting");
  });

  it("that was silent for too long is dead", () => {
    const world = live();
    expect(world.timers.get("silence")).toBe(limits.SILENCE_LIMIT_MS);
    world.rings("silence");
    expect(world.machine.connection).toMatchObject({ type: "waiting", reason: "the server did not respond" });
    expect(world.open).toBeNull();
  });

  it("that does not open is given up", () => {
    const world = new World();
    expect(world.timers.get("silence")).toBe(limits.CONNECT_LIMIT_MS);
    expect(world.rings("silence").machine.connection).toMatchObject({ reason: "the server did not respond" });
  });

  it("waits a random part of a delay that grows with each failure, up to a cap", () => {
    const world = new World();
    const delays: number[] = [];
    for (let i = 0; i < 10; i += 1) {
      world.closed(lost);
      delays.push(world.timers.get("retry")!);
      world.rings("retry");
    }
    expect(delays.slice(0, 3)).toEqual([500, 999, 1998]);
    expect(Math.max(...delays)).toBeLessThanOrEqual(limits.RETRY_CAP_MS);
    world.chance = 0;
    expect(world.closed(lost).timers.get("retry")).toBe(0);
  });

  it("that delivered events resets the delay, however soon it is lost", () => {
    const world = new World().closed(lost).rings("retry").closed(lost).rings("retry");
    expect(world.opened().heard("nothing").closed(lost).timers.get("retry")).toBe(1998);
    expect(world.rings("retry").opened().heard("snapshot").closed(lost).timers.get("retry")).toBe(3996);
    expect(world.rings("retry").opened().heard("events").closed(lost).timers.get("retry")).toBe(500);
  });

  it("that lasted resets the delay; one that only opened does not", () => {
    const world = new World().closed(lost).rings("retry").closed(lost).rings("retry");
    expect(world.opened().closed(lost).timers.get("retry")).toBe(1998);
    world.rings("retry").opened().rings("healthy").closed(lost);
    expect(world.timers.get("retry")).toBe(500);
  });

  it("reconnects at once when the page is visible or the device online", () => {
    expect(live().closed(lost).say({ type: "visible", silentMs: 0 }).now).toBe("connecting");
    expect(live().closed(lost).say({ type: "online" }).now).toBe("connecting");
    expect(live().closed(lost).say({ type: "wake" }).now).toBe("connecting");
  });

  it("is replaced when the page becomes visible after a long silence", () => {
    expect(live().say({ type: "visible", silentMs: 1_000 }).now).toBe("live");
    const world = live().say({ type: "visible", silentMs: limits.SUSPECT_MS });
    expect([world.now, world.opens]).toEqual(["connecting", 2]);
  });

  it("is kept while the device reports no network, and replaced when it is online again", () => {
    const world = live().say({ type: "offline" });
    expect(world.now).toBe("live");
    expect(world.say({ type: "online" }).now).toBe("connecting");
    expect(live().say({ type: "online" }).now).toBe("live");
  });

  it("that is lost without a network is offline, and still tries now and then", () => {
    const world = live().say({ type: "offline" }).closed(lost);
    expect(world.now).toBe("offline");
    expect(world.timers.has("retry")).toBe(true);
    expect(live().closed(lost).say({ type: "offline" }).rings("retry").closed(lost).now).toBe("offline");
  });

  it("refused for good ends with the problem", () => {
    for (const [status, code] of [
      [401, "unauthorized"],
      [403, "foreign_origin"],
      [404, "not_found"],
      [422, "invalid_request"],
    ] as const) {
      const world = new World().closed(refused(status, code));
      expect(world.machine.connection).toMatchObject({ type: "ended", error: { status, code } });
      expect(world.timers.size).toBe(0);
      expect(world.say({ type: "online" }).now).toBe("ended");
      expect(world.say({ type: "restart" }).now).toBe("connecting");
    }
  });

  it("refused for now reconnects, and not before the server allows it", () => {
    const world = new World().closed(refused(503, "store_unavailable", 3_000));
    expect(world.machine.connection).toMatchObject({ type: "waiting", because: "refused" });
    expect(world.timers.get("retry")).toBe(3_500);
    expect(new World().closed(refused(429, "limit_reached", 1e9)).timers.get("retry")).toBeLessThan(121_000);
  });

  it("refused for now waits, whatever happens, unless a person overrides it", () => {
    const world = new World().closed(refused(503, "draining", 30_000));
    for (const input of [
      { type: "wake" },
      { type: "online" },
      { type: "visible", silentMs: 0 },
      { type: "offline" },
      { type: "online" },
    ] as const)
      expect(world.say(input).machine.connection, input.type).toMatchObject({ because: "refused" });
    expect(world.timers.get("retry")).toBe(30_500);
    expect(world.say({ type: "restart" }).now).toBe("connecting");
  });

  it("whose events cannot be taken back never forgets its position, and fails if it is useless", () => {
    const gap: Why = { type: "gap", detail: "position 5 after 5" };
    const world = new World();
    world.final = true;
    expect(world.opened().closed(gap).forgets).toBe(0);
    expect(world.now).toBe("waiting");
    const ahead = new World();
    ahead.final = true;
    ahead.closed(refused(409, "cursor_ahead"));
    expect(ahead.machine.connection).toMatchObject({ type: "ended", error: { code: "cursor_ahead" } });
    expect(ahead.forgets).toBe(0);
  });

  it("whose position is ahead of the log forgets it and starts over", () => {
    const world = new World().closed(refused(409, "cursor_ahead"));
    expect([world.now, world.forgets]).toEqual(["waiting", 1]);
  });

  it("with a gap forgets its position and starts over", () => {
    const world = live().closed({ type: "gap", detail: "7 came after 5" });
    expect([world.now, world.forgets]).toEqual(["waiting", 1]);
  });

  it("of a hidden page is closed after a while, reopened now and then, and again with the page", () => {
    const world = live().say({ type: "hidden" });
    expect(world.now).toBe("live");
    expect(world.rings("release").machine.connection).toMatchObject({ type: "waiting", because: "hidden" });
    expect(world.timers.get("retry")).toBe(limits.PEEK_MS);
    expect(world.say({ type: "wake" }).now).toBe("waiting");
    expect(world.rings("retry").opened().now).toBe("catching_up");
    expect(world.rings("release").now).toBe("waiting");
    expect(world.say({ type: "visible", silentMs: 0 }).now).toBe("connecting");
  });

  it("of a hidden page is kept while it is needed", () => {
    const world = live().say({ type: "hidden" });
    world.keep = true;
    expect(world.rings("release").now).toBe("live");
    world.keep = false;
    expect(world.rings("release").now).toBe("waiting");
  });

  it("ignores reports of earlier connections", () => {
    const world = live().closed(lost).rings("retry");
    world.say({ type: "closed", number: 1, why: lost }).say({ type: "opened", number: 1 });
    expect(world.now).toBe("connecting");
  });

  it("that is stopped leaves nothing behind", () => {
    const world = live().say({ type: "stop" });
    expect(world.machine.connection).toEqual({ type: "ended", error: null });
    expect([world.open, world.timers.size]).toEqual([null, 0]);
  });
});

describe("whatever happens, in whatever order", () => {
  const whys = fc.constantFrom<Why>(
    lost,
    { type: "gap", detail: "gap" },
    refused(503, "store_unavailable", 1_000),
    refused(409, "cursor_ahead"),
    refused(429, "limit_reached", 1_000),
    refused(404, "not_found"),
  );
  const happenings = fc.array(
    fc.oneof(
      { weight: 3, arbitrary: fc.constant((world: World) => world.open !== null && world.opened()) },
      {
        weight: 3,
        arbitrary: fc
          .constantFrom<Heard>("nothing", "events", "snapshot")
          .map((what) => (world: World) => world.open !== null && world.heard(what)),
      },
      { weight: 3, arbitrary: whys.map((why) => (world: World) => world.open !== null && world.closed(why)) },
      {
        weight: 2,
        arbitrary: fc
          .constantFrom<Timer>("retry", "silence", "settle", "healthy", "release")
          .map((timer) => (world: World) => world.ring(timer)),
      },
      fc
        .constantFrom<Input>(
          { type: "online" },
          { type: "offline" },
          { type: "hidden" },
          { type: "wake" },
          { type: "restart" },
        )
        .map((input) => (world: World) => world.say(input)),
      fc.nat(60_000).map((silentMs) => (world: World) => world.say({ type: "visible", silentMs })),
      fc.tuple(fc.nat(5), whys).map(
        ([number, why]) =>
          (world: World) =>
            number !== world.machine.number && world.say({ type: "closed", number, why }),
      ),
      fc.tuple(fc.double({ min: 0, max: 0.99, noNaN: true }), fc.boolean()).map(
        ([chance, keep]) =>
          (world: World) =>
            Object.assign(world, { chance, keep }),
      ),
    ),
    { maxLength: 60 },
  );
  const starts = fc.record({ online: fc.boolean(), visible: fc.boolean() });

  it("it is live, or ended, or says why not and when it will try again, and never has two connections", () => {
    fc.assert(
      fc.property(starts, happenings, (start, all) => {
        const world = new World(begin(start));
        for (const happen of all) {
          happen(world);
          const { connection } = world.machine;
          const connected = ["connecting", "catching_up", "live"].includes(connection.type);
          expect(world.open !== null).toBe(connected);
          if (connected) expect(world.timers.has("silence")).toBe(true);
          if (connection.type === "catching_up") expect(world.timers.has("settle")).toBe(true);
          if (connection.type === "waiting" || connection.type === "offline") {
            expect(connection.reason).not.toBe("");
            expect(world.timers.has("retry")).toBe(true);
          }
          if (connection.type === "ended") expect(world.timers.size).toBe(0);
          expect(connection.type).not.toBe("idle");
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it("it becomes live when the network works again, unless it was refused for good", () => {
    fc.assert(
      fc.property(starts, happenings, (start, all) => {
        const world = new World(begin(start));
        for (const happen of all) happen(world);
        for (let i = 0; i < 3 && world.now !== "live" && world.now !== "ended"; i += 1) {
          if (world.timers.has("retry")) world.rings("retry");
          if (world.now === "connecting") world.opened();
          if (world.now === "catching_up") world.rings("settle");
        }
        expect(["live", "ended"]).toContain(world.now);
      }),
      { numRuns: 1_000 },
    );
  });
});
