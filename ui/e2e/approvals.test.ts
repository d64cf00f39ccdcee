/** Tool calls that wait for a person, and the decision. */

import type { Locator, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { until } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";
import { asks, startWorker } from "./worker";

let stage: Stage;
beforeAll(async () => void (stage = await startStage({ OUTLAST_TIMEOUTS__WORKER_SILENCE: "4s" })));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

function card(page: Page, command: string): Locator {
  return page.getByRole("group", { name: /^Decision needed/ }).filter({ hasText: command });
}

it("a double-click decides about the call that was clicked, and about no other", async () => {
  const worker = await startWorker(stage, "Clean up");
  const page = await stage.page(`/c/${worker.conversationId}`);
  await worker.say(
    { type: "chat.delta", payload: { text: "I will look first. " } },
    asks("call_1", "ls -l"),
    asks("call_2", "rm -rf /"),
    asks("call_3", "reboot"),
  );
  // All of them are shown, each with its input.
  for (const command of ["ls -l", "rm -rf /", "reboot"]) await card(page, command).waitFor();
  await card(page, "ls -l").getByRole("button", { name: "Approve" }).dblclick();
  await card(page, "ls -l").waitFor({ state: "detached" });
  await page.waitForTimeout(700);
  expect(await worker.approvals()).toEqual([
    expect.objectContaining({
      toolUseId: "call_1",
      decided: expect.objectContaining({ decision: "approve" }),
    }),
    expect.not.objectContaining({ decided: expect.anything() }),
    expect.not.objectContaining({ decided: expect.anything() }),
  ]);
  // After a decision by keyboard the focus stays nearby, and a second Enter does nothing.
  await card(page, "rm -rf /").getByRole("button", { name: "Deny" }).press("Enter");
  await card(page, "rm -rf /").waitFor({ state: "detached" });
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement?.className)).toBe("scroller");
  await card(page, "reboot").getByRole("button", { name: "Deny" }).click();
  await until("all decisions", async () => (await worker.approvals()).every(({ decided }) => decided));
  expect((await worker.approvals()).map(({ decided }) => decided?.decision)).toEqual([
    "approve",
    "deny",
    "deny",
  ]);
  await worker.say(
    {
      type: "tool.start",
      payload: { toolUseId: "call_1", toolName: "bash", toolInput: { command: "ls -l" } },
    },
    { type: "tool.end", payload: { toolUseId: "call_1", result: "total 0", isError: false } },
    { type: "chat.delta", payload: { text: "There is nothing to clean." } },
    { type: "chat.done", payload: {} },
  );
  await page.getByText("There is nothing to clean.").waitFor();

  await page.getByText("total 0").waitFor();
  await page.context().close();
});

it("i8_a_question_that_changes_under_a_click_is_shown_again_and_nothing_is_sent_by_itself", async () => {
  const worker = await startWorker(stage, "Tidy my home");
  const page = await stage.page("/");
  const sent = await answerLate(page, async () => {
    await worker.startOver();
    await worker.say(asks("call_1", "rm -rf ~"));
  });
  await page.goto(`${stage.url}/c/${worker.conversationId}`);
  await page.getByText("Tidy my home").first().waitFor();
  await worker.say(asks("call_1", "ls -l"));
  const [first] = await worker.approvals();
  stage.allow(page, /status of 409/);
  await card(page, "ls -l").getByRole("button", { name: "Approve" }).click();
  await page.getByText("Your decision was not applied: the request changed before it arrived.").waitFor();
  await card(page, "rm -rf ~").getByText("This request has changed since you first saw it.").waitFor();
  expect(await card(page, "ls -l").count()).toBe(0);
  expect(sent).toEqual([{ decision: "approve", hash: first?.hash }]);
  const [second] = await worker.approvals();
  expect(second?.decided).toBeUndefined();
  await card(page, "rm -rf ~").getByRole("button", { name: "Deny" }).click();
  await card(page, "rm -rf ~").waitFor({ state: "detached" });
  expect(sent[1]).toEqual({ decision: "deny", hash: second?.hash });
  expect(second?.hash).not.toBe(first?.hash);
  expect((await worker.approvals()).map(({ decided }) => decided?.decision)).toEqual(["deny"]);
  await page.context().close();
});

it("i8_invisible_characters_in_a_question_are_shown", async () => {
  const worker = await startWorker(stage, "Run a script");
  const page = await stage.page(`/c/${worker.conversationId}`);
  await worker.say(asks("call_1", "open photo\u202egnp.sh\u200b"));
  const question = card(page, "open photo");
  await question.getByText("This request contains invisible characters").waitFor();
  expect(await question.locator("pre").textContent()).toContain("open photo⟨U+202E⟩gnp.sh⟨U+200B⟩");
  expect(await question.locator("mark").allTextContents()).toEqual(["⟨U+202E⟩", "⟨U+200B⟩"]);
  await question.getByRole("button", { name: "Deny" }).click();
  await question.waitFor({ state: "detached" });
  await page.context().close();
});

/** Runs `meanwhile` before the first decision reaches the server. Returns the decisions that were sent. */
async function answerLate(page: Page, meanwhile: () => Promise<void>): Promise<unknown[]> {
  const sent: unknown[] = [];
  await page.route(/\/approvals\//, async (route) => {
    sent.push(route.request().postDataJSON());
    if (sent.length === 1) await meanwhile();
    await route.continue();
  });
  return sent;
}

it("a decision in one tab removes the question from the other", async () => {
  const worker = await startWorker(stage, "Look around");
  const here = await stage.page(`/c/${worker.conversationId}`);
  const there = await stage.page(`/c/${worker.conversationId}`);
  await worker.say(asks("call_1", "ls"));
  await card(here, "ls").waitFor();
  await card(there, "ls").getByRole("button", { name: "Deny" }).click();
  for (const tab of [here, there]) await card(tab, "ls").waitFor({ state: "detached" });
  await worker.say({ type: "chat.done", payload: {} });
  for (const tab of [here, there]) await tab.context().close();
});

it("an answer that waits for a decision can be stopped", async () => {
  const worker = await startWorker(stage, "Never mind");
  const page = await stage.page(`/c/${worker.conversationId}`);
  await worker.say(asks("call_1", "sleep 1000"));
  await card(page, "sleep 1000").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("Stopped.", { exact: true }).waitFor();
  await card(page, "sleep 1000").waitFor({ state: "detached" });
  await page.context().close();
});

it("an answer whose worker stopped responding offers only what the server accepts", async () => {
  const worker = await startWorker(stage, "Are you there?");
  await worker.say({ type: "chat.delta", payload: { text: "One moment" } });
  const page = await stage.page(`/c/${worker.conversationId}`);
  await page.getByText("The worker producing this answer stopped responding.").waitFor();
  expect(await page.getByRole("button", { name: "Resume", exact: true }).count()).toBe(0);
  await page.getByRole("button", { name: "Dismiss", exact: true }).click();
  await page.getByText("Dismissed after an interruption.").waitFor();
  await page.context().close();
});
