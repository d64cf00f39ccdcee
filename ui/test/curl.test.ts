import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { curlEvents, curlGeneration, quote } from "../src/inspect/curl";

/** The words that a shell makes of a command. */
function words(command: string): string[] {
  const script = `set -- ${command}\nfor word; do printf '%s\\0' "$word"; done`;
  return execFileSync("sh", ["-c", script], { encoding: "utf8" }).split("\0").slice(0, -1);
}

const AWKWARD = ["it's", "$(x)", "`x`", "a\nb", "'; touch owned; '", "''", "\\", '"$HOME"', "!x", " a  b "];

describe("a command to copy", () => {
  it.each(AWKWARD)("quotes %j as one word", (text) => {
    expect(words(`echo ${quote(text)}`)).toEqual(["echo", text]);
  });

  it.each(AWKWARD)("names the generation %j and runs nothing else", (id) => {
    const path = `http://127.0.0.1:8787/v1/generations/${encodeURIComponent(id)}`;
    expect(words(curlEvents("http://127.0.0.1:8787", id))).toEqual(["curl", "-N", `${path}/events`]);
    expect(words(curlGeneration("http://127.0.0.1:8787", id))).toEqual(["curl", "-s", path]);
  });
});
