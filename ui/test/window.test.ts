import { describe, expect, it } from "vitest";
import { AT_END, earlier, later, MOST, rangeOf, STEP, windowOf } from "../src/chat/window";

const list = (from: number, to: number): { seq: number }[] =>
  Array.from({ length: to - from }, (_, place) => ({ seq: (from + place) * 10 }));

describe("a window over a long list", () => {
  it("shows the last rows, even of a list that grows", () => {
    expect(rangeOf(AT_END, list(0, 500))).toEqual({ start: 500 - STEP, end: 500 });
    expect(rangeOf(AT_END, list(0, 501))).toEqual({ start: 501 - STEP, end: 501 });
    expect(rangeOf(AT_END, list(0, 3))).toEqual({ start: 0, end: 3 });
  });

  it("stays where it is when messages are added on either side", () => {
    const window = windowOf({ start: 10, end: 20 }, list(100, 200));
    expect(rangeOf(window, list(0, 300))).toEqual({ start: 110, end: 120 });
  });

  it("never holds more than the maximum", () => {
    const all = list(0, 1_000);
    let window = AT_END;
    for (let turn = 0; turn < 50; turn += 1) {
      window = earlier(rangeOf(window, all), all);
      const { start, end } = rangeOf(window, all);
      expect(end - start).toBeLessThanOrEqual(MOST);
    }
    expect(rangeOf(window, all).start).toBe(0);
    for (let turn = 0; turn < 50; turn += 1) window = later(rangeOf(window, all), all);
    expect(rangeOf(window, all)).toEqual({ start: 1_000 - MOST, end: 1_000 });
    expect(window.to).toBe(null);
  });
});
