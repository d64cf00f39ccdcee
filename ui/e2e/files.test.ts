/** The files that an agent works on: what an answer changed, the diff, the workspace, downloads. */

import { readFile } from "node:fs/promises";
import type { Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { barriers } from "./axe";
import { say, settled } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(
  async () =>
    void (stage = await startStage({
      OUTLAST_TOOLS__BASH__POLICY: "allow",
      OUTLAST_TOOLS__WRITE_FILE__POLICY: "allow",
    })),
);
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

const write = (path: string, content: string) => ({ name: "write_file", input: { path, content } });
const bash = (command: string) => ({ name: "bash", input: { command } });

function row(panel: Locator, path: string): Locator {
  return panel.locator(".file-row").filter({ hasText: path });
}

/** Two answers: the first makes two files, the second changes one, deletes one and makes one. */
async function work(page: Page, name: string): Promise<void> {
  const first = {
    pieces: ["Begun."],
    calls: [[write("src/a.txt", "one\ntwo\n"), write("old.txt", "old\n")]],
  };
  await say(page, stage.upstream.script(`${name}-1`, { ...first, later: ["Made."] }));
  await page.getByRole("region", { name: "Changed files" }).waitFor();
  await settled(page);
  const second = {
    pieces: ["More."],
    calls: [[bash("printf 'one\\n2\\n' > src/a.txt; rm old.txt; printf '<b>\\n' > new.html")]],
  };
  await say(page, stage.upstream.script(`${name}-2`, { ...second, later: ["Changed."] }));
  await page.getByRole("region", { name: "Changed files" }).nth(1).waitFor();
  await settled(page);
}

async function lines(panel: Locator, path: string): Promise<readonly string[]> {
  const shown = await panel.getByLabel(`Changes in ${path}`).locator(".diff-line").allTextContents();
  return shown.map((line) => line.trimEnd());
}

describe.each([1280, 390])("at %i pixels", (width) => {
  it("x9_the_changes_of_an_answer_are_shown_and_every_file_can_be_downloaded", async () => {
    const context = await stage.context({ viewport: { width, height: 800 }, acceptDownloads: true });
    const page = await stage.page("/", context);
    await work(page, `files-${width}`);
    await page.getByRole("region", { name: "Changed files" }).nth(1).getByText("src/a.txt").click();
    const panel = page.getByRole("dialog", { name: "Changes in this answer" });
    await panel.getByLabel("Changes in src/a.txt").waitFor();
    expect(await lines(panel, "src/a.txt")).toEqual(["@@ -1,2 +1,2 @@", " one", "−two", "+2"]);
    await row(panel, "old.txt").getByText("deleted").waitFor();
    await row(panel, "new.html").getByText("added").waitFor();
    expect(await barriers(page)).toEqual([]);
    const downloading = page.waitForEvent("download");
    await row(panel, "new.html").getByRole("link", { name: "Download new.html" }).click();
    expect(await readFile(await (await downloading).path(), "utf8")).toBe("<b>\n");
    await panel.getByRole("button", { name: "Show all files" }).click();
    const all = page.getByRole("dialog", { name: "Files" });
    await row(all, "new.html").waitFor();
    expect(await all.locator(".file-path").allTextContents()).toEqual(["new.html", "src/a.txt"]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)).toBe(false);
    await page.keyboard.press("Escape");
    await all.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Files", exact: true }).click();
    await row(page.getByRole("dialog", { name: "Files" }), "src/a.txt").waitFor();
    await context.close();
  });
});

it("the whole of a long output can be downloaded", async () => {
  const context = await stage.context({ acceptDownloads: true });
  const page = await stage.page("/", context);
  const long = "seq 1 100000";
  await say(
    page,
    stage.upstream.script("long", { pieces: ["Long."], calls: [[bash(long)]], later: ["Done."] }),
  );
  await settled(page);
  const downloading = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download the whole output" }).click();
  const text = await readFile(await (await downloading).path(), "utf8");
  expect(text).toBe(Array.from({ length: 100_000 }, (_, place) => `${place + 1}\n`).join(""));
  await context.close();
});
