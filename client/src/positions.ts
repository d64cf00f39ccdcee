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
  readonly #key: string;
  #storage: StorageLike | null | undefined;
  last: Position | null = null;

  /** In a page that names no storage it is the page's own. */
  constructor(storage: StorageLike | null | undefined, baseUrl: string) {
    this.#key = `outlast:position:${baseUrl}`;
    this.#allowed(() => {
      this.#storage = storage === undefined && globalThis.document ? localStorage : storage;
      const value = readObject(this.#storage?.getItem(this.#key) ?? "");
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

  forget(conversationId: string | null): void {
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
