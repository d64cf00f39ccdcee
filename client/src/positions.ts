/** The last position of a user, kept across reloads. */

import { readObject } from "./json.js";

export interface Position {
  readonly conversationId: string;
  /** The current generation, or the last one. */
  readonly generationId: string | null;
  /** The last event that was applied. */
  readonly seq: number;
}

/** What this needs of `localStorage`. */
export type StorageLike = Pick<Storage, "getItem" | "setItem" | "removeItem">;

export class Positions {
  readonly #baseUrl: string;
  #user = "local";
  #storage: StorageLike | null | undefined;
  #isOwn = false;
  last: Position | null = null;

  /** Without a storage, a page uses `localStorage`. */
  constructor(storage: StorageLike | null | undefined, baseUrl: string) {
    this.#baseUrl = baseUrl;
    this.#allowed(
      () => (this.#storage = storage === undefined && globalThis.document ? localStorage : storage),
    );
    this.#read();
  }

  /** Keeps the positions of people who share a browser apart. A position of this page moves to the user. */
  belongTo(user: string): void {
    if (user === this.#user) return;
    if (this.#isOwn) this.#allowed(() => this.#storage?.removeItem(this.#key));
    this.#user = user;
    if (this.#isOwn) this.flush();
    else this.#read();
  }

  get #key(): string {
    return `outlast:${encodeURIComponent(this.#user)}:position:${this.#baseUrl}`;
  }

  #read(): void {
    this.last = null;
    this.#allowed(() => {
      const value = readObject(this.#storage?.getItem(this.#key) ?? "");
      if (typeof value?.["conversationId"] === "string") this.last = value as unknown as Position;
    });
  }

  /** Stored at once when another generation starts; otherwise by `flush`. */
  note(position: Position): void {
    this.#isOwn = true;
    const isNew =
      this.last?.conversationId !== position.conversationId ||
      this.last.generationId !== position.generationId;
    this.last = position;
    if (isNew) this.flush();
  }

  forget(conversationId: string | null): void {
    if (this.last?.conversationId !== conversationId) return;
    this.last = null;
    this.#allowed(() => this.#storage?.removeItem(this.#key));
  }

  flush(): void {
    if (this.last !== null) this.#allowed(() => this.#storage?.setItem(this.#key, JSON.stringify(this.last)));
  }

  /** Storage may be full, or forbidden in a private window. Then a reload starts without a position. */
  #allowed(action: () => void): void {
    try {
      action();
    } catch {
      // Nothing else depends on the position.
    }
  }
}
