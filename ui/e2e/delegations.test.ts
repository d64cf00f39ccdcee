/** A sub-agent, seen from its parent: the plan, the question, the result, and the way to it. */

import type { Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { barriers } from "./axe";
import { say, settled } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(
  async () =>
    void (stage = await startStage({
      OUTLAST_AGENT__MAX_DEPTH: "1",
      OUTLAST_TOOLS__WRITE_FILE__POLICY: "ask",
    })),
);
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

const PLAN = { plan: ["read the notes", "write the summary"], openTasks: ["write the summary"] };

/** The messages that let a parent delegate, and its sub-agent plan and then ask. */
function family(name: string): string {
  const task = stage.upstream.script(`${name}-child`, {
    pieces: ["First a plan."],
    calls: [
      [{ name: "update_plan", input: PLAN }],
      [{ name: "write_file", input: { path: "summary.md", content: "All is well." } }],
    ],
    later: ["Now the file.", "The summary is written."],
  });
  return stage.upstream.script(name, {
    pieces: ["A sub-agent does that."],
    calls: [[{ name: "delegate", input: { task: `Summarize the notes. ${task}` } }]],
    later: ["My sub-agent is done."],
  });
}

function card(page: Page): Locator {
  return page.locator(".tool-card").filter({ hasText: "Summarize the notes." });
}

function question(page: Page): Locator {
  return page.getByRole("group", { name: /^Decision needed/ }).filter({ hasText: "summary.md" });
}

it("p4_a_question_of_a_sub_agent_is_decided_in_its_parent, beside its plan", async () => {
  const page = await stage.page();
  await say(page, family("notes"));
  await card(page).getByText("waiting for you").waitFor();
  expect(await card(page).locator(".delegation div").allTextContents()).toEqual([
    "Planread the noteswrite the summary",
    "Open taskswrite the summary",
  ]);
  await question(page).getByText("Asked by a sub-agent.").waitFor();
  expect(await barriers(page)).toEqual([]);
  await page.reload();
  await card(page).getByText("read the notes").waitFor();
  // The sidebar lists the parent alone.
  expect(await page.locator(".conversation-row").count()).toBe(1);
  await question(page).getByRole("button", { name: "Approve" }).click();
  await page.getByText("My sub-agent is done.").waitFor();
  await card(page).getByText(/^done/).waitFor();
  await card(page).getByText("The summary is written.").waitFor();
  await page.reload();
  await card(page).getByRole("link", { name: "Open the sub-agent" }).click();
  await page.getByText("A sub-agent works here for").waitFor();
  await page.getByText("The summary is written.").waitFor();
  expect(await page.locator(".conversation-row").count()).toBe(1);
  expect(await page.getByRole("textbox", { name: "Message" }).count()).toBe(0);
  expect(await barriers(page)).toEqual([]);
  await page.getByRole("link", { name: "another conversation" }).click();
  await page.getByText("My sub-agent is done.").waitFor();
  await page.getByRole("link", { name: "Inspect this answer" }).last().click();
  const listed = page.getByRole("region", { name: "Sub-agents" });
  await listed.getByText("completed").waitFor();
  await listed.getByRole("link", { name: "Conversation" }).click();
  await page.getByText("A sub-agent works here for").waitFor();
  await page.context().close();
});

it("g5_p4_a_parent_that_is_stopped_stops_its_sub_agent", async () => {
  const page = await stage.page();
  await say(page, family("stopped"));
  await question(page).waitFor();
  const child = await card(page).getByRole("link", { name: "Open the sub-agent" }).getAttribute("href");
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await settled(page);
  await question(page).waitFor({ state: "detached" });
  await page.goto(`${stage.url}${child}`);
  await page.getByText("Stopped.", { exact: true }).waitFor();
  expect(await page.getByRole("button", { name: "Retry" }).count()).toBe(0);
  await page.context().close();
});
