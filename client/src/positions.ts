/** Where somebody was, kept across reloads. */

import { readObject } from "./json.js";

export interface Position {
  readonly conversationId: string;
  /** The generation that was under way, or the last one. */
  readonly generationId: string | null;
  /** The last event that was taken in. */
  readonly seq: number;
}

/** What this needs of `localStorage`. */
export type StorageLike = Pick<Storage, "getItem" | "setItem" | "removeItem">;

export class Positions {
  readonly #storage: StorageLike | null;
  readonly #key: string;
  last: Position | null = null;

  constructor(storage: StorageLike | null, baseUrl: string) {
    this.#storage = storage;
    this.#key = `outlast:position:${baseUrl}`;
    this.#allowed(() => {
      const value = readObject(storage?.getItem(this.#key) ?? "");
      if (typeof value?.["conversationId"] === "string") this.last = value as unknown as Position;
    });
  }

  /** Remembers. It is written down when another generation begins; in between, `flush` does it. */
  note(position: Position): void {
    const isNew =
      this.last?.conversationId !== position.conversationId ||
      this.last.generationId !== position.generationId;
    this.last = position;
    if (isNew) this.flush();
  }

  forget(conversationId: string): void {
    if (this.last?.conversationId !== conversationId) return;
    this.last = null;
    this.#allowed(() => this.#storage?.removeItem(this.#key));
  }

  flush(): void {
    if (this.last !== null) this.#allowed(() => this.#storage?.setItem(this.#key, JSON.stringify(this.last)));
  }

  /** A storage may be full, or forbidden in a private window: then a reload begins at the list. */
  #allowed(action: () => void): void {
    try {
      action();
    } catch {
      // Nothing depends on it.
    }
  }
}

/** The page's own storage, if it has one and may use it. */
export function pageStorage(): StorageLike | null {
  try {
    return typeof document === "undefined" ? null : globalThis.localStorage;
  } catch {
    return null;
  }
}
