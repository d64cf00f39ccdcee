/** What a person is told about answers that ended while nobody was watching. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import type { Page } from "playwright-core";
import { say, sees, until } from "./person";
import { barriers } from "./axe";
import { startStage } from "./stage";
import type { Stage } from "./stage";
import { asks, startWorker } from "./worker";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(async () => {
  expect(stage.complaints()).toEqual([]);
  await fetch(`${stage.server.url}/v1/notifications/read`, { method: "POST" });
});

/** Starts an answer that nobody follows. */
async function ask(content: string, model = "demo"): Promise<void> {
  const response = await fetch(`${stage.server.url}/v1/generations`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ content, model, tools: [] }),
  });
  expect(response.status).toBe(202);
}

async function violations(page: Page): Promise<readonly string[]> {
  await page.evaluate(axe);
  const found = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string }[] }> } }).axe.run(),
  );
  return found.violations.map((one) => one.id);
}

it("b6: a notification arrives while the tab is hidden, and leads to the answer", async () => {
  const page = await stage.page();
  await page.getByRole("button", { name: "Notifications", exact: true }).waitFor();
  // Another tab in front hides this one.
  const other = await page.context().newPage();
  await other.bringToFront();
  await page.evaluate(() =>
    Object.defineProperty(document, "visibilityState", { configurable: true, get: () => "hidden" }),
  );
  await ask("Tell me a story while I am away");
  await until("the number in the title", async () => (await page.title()).startsWith("(1)"));
  await other.close();
  await page.evaluate(() => delete (document as { visibilityState?: unknown }).visibilityState);
  await page.bringToFront();
  await page.getByRole("button", { name: "Notifications, 1 unread" }).click();
  expect(await violations(page)).toEqual([]);
  const dialog = page.getByRole("dialog", { name: "Notifications" });
  await dialog.getByRole("link", { name: /Answer is ready.*unread.*Tell me a story/ }).click();
  await until("the conversation", () => /\/c\/conv_/.test(page.url()));
  await sees(page, "");
  await until("no unread one", async () => !(await page.title()).startsWith("("));
  await page.getByRole("button", { name: "Notifications", exact: true }).waitFor();
  await page.context().close();
});

it("b6: reading is shared between tabs, and all can be marked as read", async () => {
  const context = await stage.context();
  const [one, two] = [await stage.page("/", context), await stage.page("/", context)];
  await ask("First");
  await ask("Second");
  for (const page of [one, two])
    await page.getByRole("button", { name: "Notifications, 2 unread" }).waitFor();
  await one.getByRole("button", { name: "Notifications, 2 unread" }).click();
  await one.getByRole("button", { name: "Mark all as read" }).click();
  await one.getByRole("button", { name: "Close notifications" }).click();
  for (const page of [one, two])
    await page.getByRole("button", { name: "Notifications", exact: true }).waitFor();
  await context.close();
});

it("b6: on a phone the menu shows that there is something, and the list fits", async () => {
  const context = await stage.context({ viewport: { width: 360, height: 740 } });
  const page = await stage.page("/", context);
  await ask("On the phone");
  await page.getByRole("button", { name: "Show conversations, 1 unread notifications" }).click();
  await page.getByRole("button", { name: "Notifications, 1 unread" }).click();
  const dialog = page.getByRole("dialog", { name: "Notifications" });
  const box = await dialog.boundingBox();
  expect(box !== null && box.x >= 0 && box.x + box.width <= 360).toBe(true);
  expect(await violations(page)).toEqual([]);
  await context.close();
});

it("b6: push messages are offered once, in the list, and the browser asks only after a click", async () => {
  const context = await stage.context();
  // A browser that has not been asked yet. It counts how often it would ask the person.
  await context.addInitScript(() => {
    Object.defineProperty(Notification, "permission", { configurable: true, get: () => "default" });
    Notification.requestPermission = async () => {
      localStorage.setItem("asked", String(Number(localStorage.getItem("asked") ?? 0) + 1));
      return "denied";
    };
  });
  const asked = (page: Page): Promise<string | null> => page.evaluate(() => localStorage.getItem("asked"));
  const page = await stage.page("/", context);
  const open = async (): Promise<void> => page.getByRole("button", { name: /^Notifications/ }).click();
  const offer = page.getByText("Show these on this device");
  expect(await offer.count()).toBe(0);
  await open();
  await offer.waitFor();
  expect(await asked(page)).toBe(null);
  expect(await violations(page)).toEqual([]);
  await page.getByRole("button", { name: "Turn on" }).click();
  await page.getByText("This browser does not allow notifications.").waitFor();
  expect(await asked(page)).toBe("1");
  await page.reload();
  await open();
  await page.getByRole("dialog", { name: "Notifications" }).waitFor();
  expect(await offer.count()).toBe(0);
  expect(await asked(page)).toBe("1");
  await context.close();
});

it("b6: what a person reads is not shown as unread", async () => {
  const page = await stage.page();
  // It may end before the page follows it, and then there is a notification.
  await say(page, "I am watching");
  await until("the end", async () => {
    const list = await fetch(`${stage.server.url}/v1/generations?limit=1`);
    const { data } = (await list.json()) as { data: { status: string }[] };
    return data[0]?.status === "completed";
  });
  await until("no unread one", async () => {
    const inbox = await fetch(`${stage.server.url}/v1/notifications`);
    return ((await inbox.json()) as { unread: number }).unread === 0;
  });
  await page.getByRole("button", { name: "Notifications", exact: true }).waitFor();
  await page.context().close();
});

it("b6: the link of a notification shows the question, and a click decides it once", async () => {
  const worker = await startWorker(stage, "Tidy up, please");
  const command = "rm -rf build\u200b";
  await worker.say({ type: "chat.delta", payload: { text: "May I? " } }, asks("call_1", command));
  const id = await until("the notification", async () => {
    const inbox = await fetch(`${stage.server.url}/v1/notifications`);
    const { data } = (await inbox.json()) as { data: { id: string; generationId: string }[] };
    return data.find((one) => one.generationId === worker.generationId)?.id;
  });
  const [page, late] = [await stage.page(`/approve/${id}`), await stage.page(`/approve/${id}`)];
  for (const shown of [page, late]) {
    await shown.getByText("Run bash?").waitFor();
    await shown.locator("pre", { hasText: "rm -rf build" }).waitFor();
  }
  expect(await barriers(page)).toEqual([]);
  expect((await worker.approvals())[0]?.decided, "opening it decides nothing").toBeUndefined();
  await page.getByRole("button", { name: "Deny" }).click();
  await page.getByRole("status").getByText("Decided.").waitFor();
  expect((await worker.approvals())[0]?.decided?.decision).toBe("deny");
  stage.allow(late, /\b409\b/);
  await late.getByRole("button", { name: "Approve" }).click();
  await late.getByRole("alert").waitFor();
  expect((await worker.approvals())[0]?.decided?.decision).toBe("deny");
  await late.reload();
  await late.getByText("no longer needs a decision").waitFor();
  await page.locator("main").getByRole("link", { name: "Tidy up, please" }).click();
  await page.getByText("May I?").waitFor();
  await page.context().close();
  await late.context().close();
});
