/** Reads Server-Sent Events from bytes, wherever the network cuts them. */

import { networkError } from "./problem.js";

/**
 * The longest event that is taken in, in UTF-16 units. A snapshot holds up to 200 messages, so this is
 * generous; it is there so that a broken peer cannot fill the memory.
 */
export const MAX_EVENT_LENGTH = 2 ** 25;

/** Feed it chunks; it hands out the `data` of every event that is complete. */
export class SseParser {
  // Takes off a byte order mark, and keeps a character that is cut in two until its rest arrives.
  readonly #decoder = new TextDecoder();
  #line = "";
  #data: string[] = [];
  #length = 0;
  #afterCr = false;

  /** The events that this chunk completes. Comments yield nothing. */
  push(chunk: Uint8Array): string[] {
    let text = this.#decoder.decode(chunk, { stream: true });
    const events: string[] = [];
    if (text === "") return events;
    // A line feed that only completes the carriage return of the chunk before.
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
    if (this.#length > MAX_EVENT_LENGTH) throw networkError("an event could not be read");
  }

  /** Takes in a whole line. An empty one completes an event, if there was any data. */
  #endLine(): string | null {
    const line = this.#line;
    this.#line = "";
    if (line !== "") {
      // Only `data` matters: the event repeats its id and type inside.
      if (line === "data" || line.startsWith("data:")) this.#data.push(line.slice(5).replace(/^ /, ""));
      return null;
    }
    const event = this.#data.length > 0 ? this.#data.join("\n") : null;
    this.#data = [];
    this.#length = 0;
    return event;
  }
}
