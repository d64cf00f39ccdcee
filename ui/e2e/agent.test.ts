/** An agent at work: what its tools write, in every tab, whatever happens to the page and the server. */

import type { Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { revealBidi } from "../src/markdown/invisible";
import { barriers } from "./axe";
import { lastGeneration, say, settled, until } from "./person";
import { CUT, startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(
  async () =>
    void (stage = await startStage({
      OUTLAST_TOOLS__BASH__POLICY: "allow",
      OUTLAST_TOOLS__WRITE_FILE__POLICY: "ask",
    })),
);
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

/** A tool that writes for about eight seconds, and what it writes. */
const COUNT = "i=1; while [ $i -le 80 ]; do echo line$i; i=$((i+1)); sleep 0.1; done; echo oh >&2; exit 3";
const COUNTED = `${Array.from({ length: 80 }, (_, place) => `line${place + 1}\n`).join("")}oh\n[exit code 3]`;

const bash = (command: string) => ({ name: "bash", input: { command } });
const write = (path: string, content: string) => ({ name: "write_file", input: { path, content } });

function card(page: Page, subject: string): Locator {
  return page.locator(".tool-card").filter({ hasText: subject });
}

function question(page: Page, subject: string): Locator {
  return page.getByRole("group", { name: /^Decision needed/ }).filter({ hasText: subject });
}

/** What the card of a tool shows as its output. */
function written(page: Page, subject: string): Promise<string | null> {
  return card(page, subject).locator(".tool-output").textContent();
}

/** The results in the page are the results on the server. */
async function resultsAgree(page: Page): Promise<void> {
  const { contentParts } = await lastGeneration(stage, page);
  for (const closed of await page.locator(".tool-card:not([open]) summary").all()) await closed.click();
  const results = (contentParts ?? []).flatMap((part) =>
    part.type === "tool_result" ? [revealBidi(String(part.content))] : [],
  );
  const shown = await page.locator(".tool-output[aria-label='Tool result']").allTextContents();
  expect(shown).toEqual(results.filter((result) => result !== ""));
}

it("x8_a_tool_writes_on_while_the_page_is_reloaded_and_the_server_is_killed", async () => {
  const page = await stage.page();
  await say(
    page,
    stage.upstream.script("count", { pieces: ["Counting."], calls: [[bash(COUNT)]], later: ["Counted."] }),
  );
  await until("its first lines", async () => (await written(page, "line$i"))?.includes("line5\n"));
  expect(await card(page, "line$i").locator(".tool-state").textContent()).toContain("running");
  await page.reload();
  await until("the lines from before", async () =>
    (await written(page, "line$i"))?.startsWith("line1\nline2\n"),
  );
  const other = await stage.page(new URL(page.url()).pathname);
  for (const tab of [page, other]) stage.allow(tab, CUT);
  await stage.server.kill();
  await stage.server.restart();
  for (const tab of [page, other])
    await until("the tool to write on", async () => (await written(tab, "line$i"))?.includes("line60\n"));
  for (const tab of [page, other]) {
    await settled(tab);
    await card(tab, "line$i")
      .getByText(/exit code 3 · \d/)
      .waitFor();
    expect(await written(tab, "line$i")).toBe(COUNTED);
    await resultsAgree(tab);
  }
  await page.reload();
  await until("the result after a reload", async () => (await written(page, "line$i")) === COUNTED);
  await card(page, "line$i")
    .getByText(/exit code 3 · \d/)
    .waitFor();
  expect(await barriers(page)).toEqual([]);
  for (const tab of [page, other]) await tab.context().close();
});

it("g5_a_tool_that_is_stopped_says_so", async () => {
  const page = await stage.page();
  await say(
    page,
    stage.upstream.script("stop", { pieces: ["On it."], calls: [[bash("echo begun; sleep 1000")]] }),
  );
  await until("its output", async () => (await written(page, "sleep 1000")) === "begun\n");
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await card(page, "sleep 1000").getByText("stopped", { exact: true }).waitFor();
  expect(await written(page, "sleep 1000")).toBe("begun\n");
  await page.context().close();
});

it("what a tool writes is bounded in the page, and all of it can be shown", async () => {
  const page = await stage.page();
  const many = "i=1; while [ $i -le 4000 ]; do echo number$i; i=$((i+1)); done";
  await say(
    page,
    stage.upstream.script("many", { pieces: ["Many."], calls: [[bash(many)]], later: ["Done."] }),
  );
  await settled(page);
  expect((await written(page, "number$i"))?.length).toBeLessThan(21_000);
  expect(await written(page, "number$i")).toContain("number4000\n");
  await card(page, "number$i").getByRole("button", { name: "Show whole output" }).click();
  expect(await written(page, "number$i")).toMatch(/^number1\n/);
  await resultsAgree(page);
  await page.context().close();
});

it("g6_a_decision_in_a_second_tab_runs_the_tool_in_both", async () => {
  const page = await stage.page();
  const name = stage.upstream.script("ask", {
    pieces: ["I will write a file."],
    calls: [[write("a.txt", "hello\u202e\n")], [bash("cat a.txt")]],
    later: ["Let me look.", "It is there."],
  });
  await say(page, name);
  await question(page, "a.txt").getByText("This request contains invisible characters").waitFor();
  expect(await question(page, "a.txt").locator("dd").last().textContent()).toBe("hello⟨U+202E⟩\n");
  expect(await barriers(page)).toEqual([]);
  const other = await stage.page(new URL(page.url()).pathname);
  await card(other, "a.txt").getByText("waiting for you").waitFor();
  await question(other, "a.txt").getByRole("button", { name: "Approve" }).click();
  for (const tab of [page, other]) {
    await question(tab, "a.txt").waitFor({ state: "detached" });
    await settled(tab);
    await card(tab, "cat a.txt").getByText(/^done/).waitFor();
    await tab.getByText("It is there.").waitFor();
    await resultsAgree(tab);
    await tab.context().close();
  }
});

it("g6_a_call_that_is_denied_with_a_reason_says_so, and the model reads it", async () => {
  const page = await stage.page();
  const name = stage.upstream.script("deny", {
    pieces: ["I will write a file."],
    calls: [[write("b.txt", "no")]],
    later: ["As you wish."],
  });
  await say(page, name);
  await question(page, "b.txt").getByLabel("Reason").fill("not today");
  await question(page, "b.txt").getByRole("button", { name: "Deny" }).click();
  await card(page, "b.txt").getByText("denied", { exact: true }).waitFor();
  expect(await written(page, "b.txt")).toBe("denied by a person: not today");
  await page.getByText("As you wish.").waitFor();
  await resultsAgree(page);
  await page.context().close();
});

it("g6_a_decision_for_a_pattern_answers_later_calls_like_it, and no others", async () => {
  const page = await stage.page();
  const name = stage.upstream.script("always", {
    pieces: ["I will write files."],
    calls: [[write("notes/1.md", "one")], [write("notes/2.md", "two"), write("else.md", "three")]],
    later: ["More.", "Done."],
  });
  await say(page, name);
  const first = question(page, "notes/1.md");
  await first.getByLabel("Applies to").selectOption("pattern");
  await first.getByLabel("Pattern for path").fill("notes/*");
  await first.getByRole("button", { name: "Approve" }).click();
  await question(page, "else.md").waitFor();
  expect(await question(page, "notes/2.md").count()).toBe(0);
  await card(page, "notes/2.md").getByText(/^done/).waitFor();
  await question(page, "else.md").getByRole("button", { name: "Approve" }).click();
  await page.getByText("Done.", { exact: true }).waitFor();
  await page.context().close();
});
