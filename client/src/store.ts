/** Something that can be watched: `subscribe` and `snapshot`, as React and others expect them. */

/** How listeners are told: `flush` is called later, once for all that changed until then. */
export type Schedule = (flush: () => void) => void;

/** A frame that does not come, because the page is hidden, is not waited for longer than this. */
const LATE_FRAME_MS = 100;
/**
 * How long something that nobody watches any more goes on. React unsubscribes and subscribes again when it
 * mounts twice or moves from page to page; that must not cost a connection.
 */
export const RELEASE_GRACE_MS = 2_000;

/** In a page once a frame, elsewhere once for everything that arrived together. */
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

  /** Calls back after changes, never for each event, until the answer is called. */
  readonly subscribe = (listener: () => void): (() => void) => {
    // One of its own for each, as the same listener may be given twice.
    const entry = (): void => listener();
    this.#listeners.add(entry);
    clearTimeout(this.#resting);
    if (this.#listeners.size === 1) this.wake();
    return () => {
      if (!this.#listeners.delete(entry) || this.#listeners.size > 0) return;
      this.#resting = setTimeout(() => this.rest(), RELEASE_GRACE_MS);
    };
  };

  /** What there is to show: the same object until something changes. */
  readonly snapshot = (): Snapshot => this.#snapshot ?? this.initialSnapshot();

  /**
   * What there was to show when nothing had been loaded yet, as on a server that renders pages. Whoever
   * makes a store calls this first.
   */
  readonly initialSnapshot = (): Snapshot => (this.#initial ??= this.render());

  get isWatched(): boolean {
    return this.#listeners.size > 0;
  }

  /** What there is to show now. */
  protected abstract render(): Snapshot;
  /** Somebody watches. May be called again without a rest in between. */
  protected abstract wake(): void;
  /** Nobody has watched for a while. */
  protected abstract rest(): void;

  /** Tells listeners soon. */
  protected changed(): void {
    if (this.#scheduled !== null) return;
    const scheduled = {};
    this.#scheduled = scheduled;
    this.#schedule(() => this.#scheduled === scheduled && this.publish());
  }

  /** Tells listeners now. */
  protected publish(): void {
    this.#scheduled = null;
    this.#snapshot = this.render();
    for (const listener of [...this.#listeners]) listener();
  }
}
