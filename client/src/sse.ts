/** Parses Server-Sent Events from bytes that may be cut anywhere. */

import { networkError } from "./problem.js";

/**
 * The longest event, in UTF-16 units. Generous, because a snapshot holds up to 200 messages. It keeps a broken
 * server from filling the memory.
 */
export const MAX_EVENT_LENGTH = 2 ** 25;

/** Takes chunks, and returns the `data` of every complete event. */
export class SseParser {
  // Removes a byte order mark, and holds back an incomplete character.
  readonly #decoder = new TextDecoder();
  #line = "";
  #data: string[] = [];
  #length = 0;
  #afterCr = false;

  /** The events that this chunk completes. Comments are skipped. */
  push(chunk: Uint8Array): string[] {
    let text = this.#decoder.decode(chunk, { stream: true });
    const events: string[] = [];
    if (text === "") return events;
    // A line feed that belongs to the carriage return at the end of the last chunk.
    if (this.#afterCr) text = text.replace(/^\n/, "");
    this.#afterCr = text.endsWith("\r");
    text.split(/\r\n?|\n/).forEach((piece, place) => {
      const event = place > 0 ? this.#endLine() : null;
      if (event !== null) events.push(event);
      this.#grow(piece);
    });
    return events;
  }

  #grow(text: string): void {
    this.#line += text;
    this.#length += text.length;
    if (this.#length > MAX_EVENT_LENGTH) throw networkError("received an event that is too long");
  }

  /** Handles a complete line. An empty one ends an event, if there was any data. */
  #endLine(): string | null {
    const line = this.#line;
    this.#line = "";
    if (line !== "") {
      // Only `data` matters: it contains the id and type too.
      if (line === "data" || line.startsWith("data:")) this.#data.push(line.slice(5).replace(/^ /, ""));
      return null;
    }
    const event = this.#data.length > 0 ? this.#data.join("\n") : null;
    this.#data = [];
    this.#length = 0;
    return event;
  }
}
