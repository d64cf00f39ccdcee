import { describe, expect, it } from "vitest";
import { mend } from "../src/markdown/mend";

describe("the end of a streaming text", () => {
  it.each([
    ["some **bold te", "some **bold te**"],
    ["some **bold ", "some **bold**"],
    ["some **", "some "],
    ["some *it", "some *it*"],
    ["a `co", "a `co`"],
    ["~~gone", "~~gone~~"],
    ["**bold and *both", "**bold and *both***"],
    ["2 * 3 * 4", "2 * 3 * 4"],
    ["done **well**.", "done **well**."],
    ["see [the docs](https://exa", "see the docs"],
    ["see [the do", "see the do"],
    ["see ![pic](https://exa", "see "],
    ["an [x] box", "an [x] box"],
    ["`[not](a link`", "`[not](a link`"],
    ["A title\n-", "A title\n"],
    ["A title\n==", "A title\n"],
    ["text\n``", "text\n"],
    ["text\n1", "text\n"],
    ["42", "42"],
    ["- one\n- ", "- one\n"],
    ["| a | b |", ""],
    ["| a | b |\n", "| a | b |\n|---|---|"],
    ["| a | b |\n|--", "| a | b |\n|---|---|"],
    ["| a | b |\n|---|---|\n| 1", "| a | b |\n|---|---|\n| 1"],
    ["plain words", "plain words"],
  ])("%j is shown as %j", (text, mended) => {
    expect(mend(text)).toBe(mended);
  });
});
