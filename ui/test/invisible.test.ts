import { describe, expect, it } from "vitest";
import { revealAll, revealBidi } from "../src/markdown/invisible";

const shown = (text: string): string =>
  revealAll(text)
    .map(({ text }) => text)
    .join("");

describe("text that a person is asked to approve", () => {
  it.each([
    ["a right-to-left override", "safe\u202egnp.exe", "safe⟨U+202E⟩gnp.exe"],
    ["a zero-width space", "rm\u200b -rf", "rm⟨U+200B⟩ -rf"],
    ["a zero-width joiner", "ad\u200dmin", "ad⟨U+200D⟩min"],
    ["a byte order mark", "\ufeffls", "⟨U+FEFF⟩ls"],
    ["a soft hyphen", "ex\u00adample.com", "ex⟨U+00AD⟩ample.com"],
    ["a no-break space", "a\u00a0b", "a⟨U+00A0⟩b"],
    ["a Hangul filler", "a\u3164b", "a⟨U+3164⟩b"],
    ["tag characters outside of the basic plane", "a\u{e0041}b", "a⟨U+E0041⟩b"],
    ["a variation selector", "a\ufe0fb", "a⟨U+FE0F⟩b"],
    ["a line separator", "a\u2028b", "a⟨U+2028⟩b"],
    ["a carriage return", "echo safe\rrm -rf", "echo safe⟨U+000D⟩rm -rf"],
    ["an escape", "\u001b[2J", "⟨U+001B⟩[2J"],
    ["half a character", "a\ud800b", "a⟨U+D800⟩b"],
    ["a blank Braille pattern", "a\u2800b", "a⟨U+2800⟩b"],
  ])("i8_shows_%s", (_, text, expected) => {
    expect(shown(text)).toBe(expected);
  });

  it("keeps ordinary text as it is, in any language", () => {
    const text = "echo 'naïve — 日本語 עברית 👍'\n\tls -l | grep '⟨U+202E⟩'";
    expect(revealAll(text)).toEqual([{ text, isMark: false }]);
  });

  it("tells a character that is shown from text that looks like one", () => {
    expect(revealAll("⟨U+202E⟩\u202e").map(({ isMark }) => isMark)).toEqual([false, true, false]);
  });
});

it("text that is only read shows what could reorder it, and keeps the marks that Hebrew needs", () => {
  expect(revealBidi("\u202eevil\u2066 \u200f")).toBe("⟨U+202E⟩evil⟨U+2066⟩ \u200f");
});
