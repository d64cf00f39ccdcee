import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MAX_EVENT_LENGTH, SseParser } from "../src/sse.js";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function read(chunks: Iterable<Uint8Array>): string[] {
  const parser = new SseParser();
  return [...chunks].flatMap((chunk) => parser.push(chunk));
}

describe("the parser of Server-Sent Events", () => {
  it("returns the data of each event and skips comments, ids and types", () => {
    const stream =
      ": hello\n\nid: 1\nevent: chat.delta\ndata: one\n\n: keep-alive\n\ndata: two\ndata: lines\n\n";
    expect(read([bytes(stream)])).toEqual(["one", "two\nlines"]);
  });

  it("removes only one space after the colon", () => {
    expect(read([bytes("data:a\n\ndata: b\n\ndata:  c\n\ndata\n\n")])).toEqual(["a", "b", " c", ""]);
  });

  it("holds back an incomplete event", () => {
    expect(read([bytes("data: whole\n\ndata: half\n")])).toEqual(["whole"]);
  });

  it("removes a byte order mark, but only at the start", () => {
    expect(read([Uint8Array.of(0xef), Uint8Array.of(0xbb, 0xbf), bytes("data: \ufeffx\n\n")])).toEqual([
      "\ufeffx",
    ]);
  });

  it("reads the same wherever the stream is cut and however lines end", () => {
    const data = fc.string({ unit: "grapheme" }).map((text) => text.replace(/[\r\n]/g, "-"));
    const ends = fc.constantFrom("\n", "\r", "\r\n");
    fc.assert(
      fc.property(
        fc.array(fc.tuple(data, ends, ends)),
        fc.boolean(),
        fc.infiniteStream(fc.nat(9)),
        (events, mark, cuts) => {
          const wire = events.map(([text, first, second]) => {
            // A line feed after a lone carriage return would be one line end, not two.
            const last = first === "\r" && second === "\n" ? "\r" : second;
            return `id: 7${first === "\r" ? "\r" : first}data: ${text}${first}${last}`;
          });
          const all = bytes((mark ? "\ufeff" : "") + wire.join(""));
          const chunks: Uint8Array[] = [];
          for (let at = 0; at < all.length;) {
            const size = cuts.next().value as number;
            chunks.push(all.slice(at, at + size));
            at += size;
          }
          expect(read(chunks)).toEqual(events.map(([text]) => text));
        },
      ),
    );
  });

  it("refuses an event that is too long, even without a line end", () => {
    for (const end of ["", "\n"]) {
      const parser = new SseParser();
      const piece = bytes("data: on and on".padEnd(MAX_EVENT_LENGTH / 16, "x") + end);
      for (let i = 0; i < 15; i += 1) expect(parser.push(piece)).toEqual([]);
      expect(() => [piece, piece].map((piece) => parser.push(piece)), end).toThrow(
        "received an event that is too long",
      );
    }
  });

  it("counts the length of each event separately", () => {
    const parser = new SseParser();
    const event = bytes(`data: ${"x".repeat(MAX_EVENT_LENGTH / 4)}\n\n`);
    for (let i = 0; i < 6; i += 1) expect(parser.push(event)).toHaveLength(1);
  });
});
