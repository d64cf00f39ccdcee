/** The operator's page, and who finds it. */

import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import type { Page } from "playwright-core";
import { barriers } from "./axe";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

async function logIn(key: string): Promise<Page> {
  const page = await (await stage.context()).newPage();
  stage.allow(page, /\b401\b|WebSocket connection to .* failed/);
  await page.goto(stage.url);
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator(".account-name").waitFor();
  return page;
}

async function start(key: string, content: string, model: string): Promise<string> {
  const response = await fetch(`${stage.server.url}/v1/generations`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
    body: JSON.stringify({ content, model, tools: [] }),
  });
  expect(response.status).toBe(202);
  return ((await response.json()) as { generationId: string }).generationId;
}

it("p7: an operator sees what runs and fails of all users, and inspects only what is theirs", async () => {
  const admin = stage.server.keys("create", "--user", "olga", "--scopes", "read,write,admin");
  const ada = stage.server.keys("create", "--user", "ada");
  const failing = stage.upstream.script("fails", { pieces: [], fails: { times: 9, status: 400 } });
  const holding = stage.upstream.script("holds", { pieces: ["One ", "two "], holdAfter: 1 });
  const failed = await start(admin, failing, "default");
  const running = await start(ada, holding, "default");

  const page = await logIn(admin);
  await page.getByRole("link", { name: "Operation" }).click();
  await page.getByRole("heading", { name: "Operation" }).waitFor();
  const region = (name: string) => page.getByRole("region", { name, exact: true });
  await region("Running").getByText(running).waitFor();
  await region("Running").getByText("ada").waitFor();
  expect(await region("Running").getByRole("link").count()).toBe(0);
  await region("Instances").getByText("this instance").waitFor();
  await region("Instances").getByText("1 live, 1 owned").waitFor();
  expect(await page.content()).not.toContain("holds");
  expect(await barriers(page)).toEqual([]);
  await region("Failed recently").getByRole("link", { name: failed }).click();
  await page.getByRole("heading", { name: "Inspect answer" }).waitFor();
  expect(page.url()).toContain(`/inspect/${failed}`);
  await page.context().close();

  const other = await logIn(ada);
  expect(await other.getByRole("link", { name: "Operation" }).count()).toBe(0);
  stage.allow(other, /\b403\b/);
  await other.goto(`${stage.url}/operate`);
  await other
    .getByRole("alert")
    .getByText(/scope admin/)
    .waitFor();
  expect(await other.content()).not.toContain(failed);
  await other.context().close();
});

it("p7: on a phone the operator's page fits, in both colour schemes", async () => {
  const admin = stage.server.keys("create", "--user", "olga", "--scopes", "read,write,admin");
  for (const colorScheme of ["light", "dark"] as const) {
    const context = await stage.context({ viewport: { width: 360, height: 740 }, colorScheme });
    const page = await context.newPage();
    stage.allow(page, /\b401\b|WebSocket connection to .* failed/);
    await page.goto(`${stage.url}/operate`);
    await page.getByLabel("API key").fill(admin);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("heading", { name: "Running" }).waitFor();
    const overflows = await page
      .locator(".inspect-body")
      .evaluate((body) => body.scrollWidth > body.clientWidth);
    expect(overflows).toBe(false);
    expect(await barriers(page)).toEqual([]);
    await context.close();
  }
});
