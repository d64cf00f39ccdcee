/** Logging in and out, and what two users see of each other. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import type { Page } from "playwright-core";
import { say, until } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

/** Opens the app, which the server refuses at first. */
async function open(): Promise<Page> {
  const page = await (await stage.context()).newPage();
  stage.allow(page, /\b401\b|WebSocket connection to .* failed/);
  await page.goto(stage.url);
  await page.getByRole("heading", { name: "Log in to Outlast" }).waitFor();
  return page;
}

async function logIn(page: Page, key: string): Promise<void> {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Log in" }).click();
}

it("b5: a person logs in, is alone with what is theirs, and logs out", async () => {
  const [ada, bob] = ["ada", "bob"].map((user) => stage.server.keys("create", "--user", user));
  if (ada === undefined || bob === undefined) throw new Error("no keys");
  const page = await open();
  await page.evaluate(axe);
  const found = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string }[] }> } }).axe.run(),
  );
  expect(found.violations.map((one) => one.id)).toEqual([]);
  await logIn(page, "ol_wrong");
  await page.getByText("This key is not valid.").waitFor();
  await logIn(page, ada);
  await page.locator(".account-name", { hasText: "ada" }).waitFor();
  await say(page, "A secret of Ada's, please.");
  await until("her conversation", async () => (await page.locator(".conversation-row").count()) === 1);
  const cookies = await page.context().cookies();
  expect(cookies.map((one) => [one.name, one.httpOnly, one.secure, one.sameSite])).toEqual([
    ["__Host-outlast", true, true, "Strict"],
  ]);
  expect(await page.evaluate(() => JSON.stringify({ ...localStorage }) + document.cookie)).not.toContain(ada);

  const other = await open();
  await logIn(other, bob);
  await other.locator(".account-name", { hasText: "bob" }).waitFor();
  await other.getByText("Your conversations will appear here.").waitFor();
  expect(await other.content()).not.toContain("secret of Ada");
  await other.goto(page.url());
  stage.allow(other, /\b404\b/);
  await until("the page", async () => (await other.content()).includes("account-name"));
  expect(await other.content()).not.toContain("secret of Ada");

  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in to Outlast" }).waitFor();
  expect(await page.content()).not.toContain("secret of Ada");
  expect(await page.context().cookies()).toEqual([]);
  await page.context().close();
  await other.context().close();
});

it("b5: a page whose key is revoked asks for another", async () => {
  const key = stage.server.keys("create", "--user", "eve");
  const page = await open();
  await logIn(page, key);
  await page.locator(".account-name", { hasText: "eve" }).waitFor();
  stage.server.keys("revoke", key);
  await say(page, "Hello?");
  await page.getByRole("heading", { name: "Log in to Outlast" }).waitFor();
  await page.context().close();
});
