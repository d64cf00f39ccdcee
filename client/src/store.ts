/** The base of all stores: `subscribe` and `snapshot`, as React's `useSyncExternalStore` expects them. */

/** Calls `flush` later, once for all changes until then. */
export type Schedule = (flush: () => void) => void;

/** A hidden page gets no frames, so a change is published after this time at the latest. */
const LATE_FRAME_MS = 100;
/**
 * How long a store stays active without listeners. React unsubscribes and subscribes again in strict mode and when
 * a page changes, which must not cost a connection.
 */
export const RELEASE_GRACE_MS = 2_000;

/** Once per frame in a page; elsewhere once for everything that arrived together. */
export const oncePerFrame: Schedule = (flush) => {
  if (!globalThis.document) return queueMicrotask(flush);
  const frame = requestAnimationFrame(flush);
  setTimeout(() => (cancelAnimationFrame(frame), flush()), LATE_FRAME_MS);
};

export abstract class Store<Snapshot> {
  readonly #schedule: Schedule;
  readonly #listeners = new Set<() => void>();
  #snapshot: Snapshot | null = null;
  #initial: Snapshot | null = null;
  #scheduled: object | null = null;
  #resting: ReturnType<typeof setTimeout> | undefined;

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
  }

  /** Calls back after changes, not for each event, until the returned function is called. */
  readonly subscribe = (listener: () => void): (() => void) => {
    // Wrapped, because the same listener may be subscribed twice.
    const entry = (): void => listener();
    this.#listeners.add(entry);
    clearTimeout(this.#resting);
    if (this.#listeners.size === 1) this.wake();
    return () => {
      if (!this.#listeners.delete(entry) || this.#listeners.size > 0) return;
      this.#resting = setTimeout(() => this.rest(), RELEASE_GRACE_MS);
    };
  };

  /** The current state: the same object until something changes. */
  readonly snapshot = (): Snapshot => this.#snapshot ?? this.initialSnapshot();

  /** The state before anything was loaded, for server-side rendering. Subclasses call this in their constructor. */
  readonly initialSnapshot = (): Snapshot => (this.#initial ??= this.render());

  get isWatched(): boolean {
    return this.#listeners.size > 0;
  }

  /** Builds the current state. */
  protected abstract render(): Snapshot;
  /** Called on the first listener, possibly again without `rest` in between. */
  protected abstract wake(): void;
  /** Called when there were no listeners for a while. */
  protected abstract rest(): void;

  /** Calls the listeners soon. */
  protected changed(): void {
    if (this.#scheduled !== null) return;
    const scheduled = {};
    this.#scheduled = scheduled;
    this.#schedule(() => this.#scheduled === scheduled && this.publish());
  }

  /** Calls the listeners now. */
  protected publish(): void {
    this.#scheduled = null;
    this.#snapshot = this.render();
    for (const listener of [...this.#listeners]) listener();
  }
}
