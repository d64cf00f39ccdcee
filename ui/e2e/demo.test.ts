/** What a newcomer sees first: the demo of an agent, with a question, and a server that is killed on the way. */

import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { barriers } from "./axe";
import { lastGeneration, say, settled, until } from "./person";
import { CUT, startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(
  async () =>
    void (stage = await startStage({
      OUTLAST_TIMEOUTS__APPROVAL_PAUSE: "1s",
      OUTLAST_TIMEOUTS__SANDBOX_KILL: "4s",
    })),
);
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

it("the first suggestion is an agent that asks, is paused, survives kill -9, and fixes its bug", async () => {
  const context = await stage.context({ viewport: { width: 390, height: 844 }, hasTouch: true });
  const page = await stage.page("/", context);
  await page.getByRole("list", { name: "Examples" }).getByRole("button").first().click();
  const question = page.getByRole("group", { name: /^Decision needed/ });
  await question.filter({ hasText: "sh test.sh" }).waitFor();
  await page.locator(".sandbox-badge.is-paused").waitFor();
  await page.getByText("Paused while it waits for you.").waitFor();
  expect(await barriers(page)).toEqual([]);
  await page.reload();
  await page.getByText("Paused while it waits for you.").waitFor();
  await question.getByRole("button", { name: "Approve" }).click();
  await page.locator(".tool-card.is-failed", { hasText: "FAIL  sum 7 = 8, expected 7" }).waitFor();
  // The second question answers all later calls like it, too.
  const slow = question.filter({ hasText: "sh test.sh slow" });
  await slow.getByLabel("Applies to").selectOption("tool");
  await slow.getByRole("button", { name: "Approve" }).click();
  const output = page.locator(".tool-card", { hasText: "slow" }).locator(".tool-output");
  await until("the slow tests to write", async () =>
    (await output.textContent())?.includes("ok    sum 2 4 = 6"),
  );
  stage.allow(page, CUT);
  await stage.server.kill();
  await stage.server.restart();
  await page.getByText("All tests pass now.").waitFor({ timeout: 60_000 });
  const lines = (await output.textContent())?.trim().split("\n") ?? [];
  expect(lines).toHaveLength(23);
  expect(lines.every((line) => line.startsWith("ok "))).toBe(true);
  // The summary of files is a list, not tags.
  const changed = page.getByRole("region", { name: "Changed files" });
  await changed.getByText("adds up its arguments").waitFor();
  expect(await page.getByText("files_summary").count()).toBe(0);
  const isTooWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  expect(isTooWide).toBe(false);
  await settled(page);
  expect((await lastGeneration(stage, page)).status).toBe("completed");
  await context.close();
});

it("no example is shown before the server has said what it offers, so that none moves under a finger", async () => {
  const context = await stage.context();
  let answer = (): void => {};
  const held = new Promise<void>((resolve) => (answer = resolve));
  await context.route("**/v1/capabilities", async (route) => {
    await held;
    await route.continue();
  });
  const page = await stage.page("/", context);
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  const first = page.locator(".example").first();
  expect(await first.count()).toBe(0);
  answer();
  await first.waitFor();
  expect(await first.textContent()).toContain("/demo project");
  await context.close();
});

it("g6_a_question_that_outlived_its_sandbox_restores_the_files_and_goes_on", async () => {
  const page = await stage.page();
  await page.getByLabel("Model").selectOption("demo");
  await say(page, "/demo danger");
  const question = page.getByRole("group", { name: /^Decision needed/ });
  await question.filter({ hasText: "rm -rf" }).waitFor();
  await page.locator(".sandbox-badge.is-paused").waitFor();
  await page.locator(".sandbox-badge.is-off").waitFor();
  await question.getByLabel("Reason").fill("I still need it");
  await question.getByRole("button", { name: "Deny" }).click();
  await page.getByText("You said no, so nothing was deleted.").waitFor();
  await page.getByText("denied by a person: I still need it").waitFor();
  await say(page, "/demo danger");
  await question.filter({ hasText: "rm -rf" }).waitFor();
  await page.locator(".sandbox-badge.is-off").waitFor();
  await question.getByRole("button", { name: "Approve" }).click();
  await page.getByText("You said yes, and the workspace is empty now.").waitFor();
  await page.locator(".sandbox-badge.is-live").waitFor();
  expect(await page.locator(".tool-output", { hasText: "The workspace is empty." }).count()).toBe(1);
  await page.context().close();
});

it("the menu says what there is to see", async () => {
  const page = await stage.page();
  await page.getByLabel("Model").selectOption("demo");
  await say(page, "/demo");
  await page.getByText("Pick something to see.").waitFor();
  for (const show of ["project", "danger", "count", "trouble"])
    await page.locator("code", { hasText: `/demo ${show}` }).waitFor();
  await settled(page);
  await page.context().close();
});

it("without a sandbox the page says how to get one, where a tool would run", async () => {
  const bare = await startStage({ OUTLAST_SANDBOX__KIND: "none" });
  try {
    const page = await bare.page();
    await page.getByText("Tools are switched off by sandbox.kind").waitFor();
    await page.getByLabel("Model").selectOption("demo");
    await say(page, "/demo project");
    await page.getByText("this server has no sandbox to run them in").waitFor();
    await page.locator(".turn-note", { hasText: "Tools are switched off by sandbox.kind" }).waitFor();
    expect(bare.complaints()).toEqual([]);
  } finally {
    await bare.end();
  }
});
