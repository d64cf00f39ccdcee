/** A tool that waits for a person, and what becomes of the decision. */

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
  return page.getByRole("group", { name: /^A decision is needed/ }).filter({ hasText: command });
}

it("a double-click decides about the call that was shown, and about no other", async () => {
  const worker = await startWorker(stage, "Clean up");
  const page = await stage.page(`/c/${worker.conversationId}`);
  await worker.say(
    { type: "chat.delta", payload: { text: "I will look first. " } },
    asks("call_1", "ls -l"),
    asks("call_2", "rm -rf /"),
    asks("call_3", "reboot"),
  );
  // All of them are shown, each with what it would do.
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
  // Whoever decides with the keyboard is not thrown to the top of the page, and a second Enter does nothing.
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
  await page.locator(".tool-card summary", { hasText: "done" }).click();
  await page.getByText("total 0").waitFor();
  await page.context().close();
});

it("a decision in one tab is seen in the other, and the second one is told that it was late", async () => {
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

it("what waits for a decision can be stopped", async () => {
  const worker = await startWorker(stage, "Never mind");
  const page = await stage.page(`/c/${worker.conversationId}`);
  await worker.say(asks("call_1", "sleep 1000"));
  await card(page, "sleep 1000").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText("Stopped.", { exact: true }).waitFor();
  await card(page, "sleep 1000").waitFor({ state: "detached" });
  await page.context().close();
});

it("an answer whose worker fell silent offers nothing that the server would refuse", async () => {
  const worker = await startWorker(stage, "Are you there?");
  await worker.say({ type: "chat.delta", payload: { text: "One moment" } });
  const page = await stage.page(`/c/${worker.conversationId}`);
  await page.getByText("The program that makes it was not heard.").waitFor();
  expect(await page.getByRole("button", { name: "Resume" }).count()).toBe(0);
  await page.getByRole("button", { name: "Dismiss" }).click();
  await page.getByText("Dismissed after an interruption.").waitFor();
  await page.context().close();
});
