/** Any generation can be looked at, while it runs and after. */

import type { OutlastEvent } from "@outlast/client";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { lastGeneration, say, sees, settled, textOf, until, words } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

it("a finished generation is shown with its attempts, and played again", async () => {
  const page = await stage.page();
  const script = { pieces: words(80), everyMs: 4, breaks: { times: 1, after: 20 } };
  await say(page, stage.upstream.script("inspected", script));
  await sees(page, "word80");
  await settled(page);
  const generation = await lastGeneration(stage, page);
  await page.getByRole("link", { name: "Inspect how this answer was made" }).click();
  await page.getByText("What it said was withdrawn.").waitFor();
  expect(await page.locator(".span.is-attempt").count()).toBe(2);
  expect(await page.locator(".span.is-wait").count()).toBe(1);
  const response = await fetch(
    `${stage.server.url}/v1/generations/${generation.id}/events?format=json&limit=1000`,
  );
  const { data } = (await response.json()) as { data: OutlastEvent[] };
  const deltas = data.filter(({ type }) => type === "chat.delta").length;
  const chip = page.getByRole("button", { name: `chat.delta ${deltas}` });
  await chip.click();
  await until("the words are left out", async () =>
    (await page.locator(".event-type").allTextContents()).every((type) => type !== "chat.delta"),
  );
  await page.locator(".event", { hasText: "attempt.retracted" }).click();
  const json = JSON.parse((await page.locator(".event-json pre").textContent()) ?? "") as OutlastEvent;
  expect(data).toContainEqual(json);
  await page.getByRole("button", { name: "16×" }).click();
  await page.getByRole("button", { name: "Play" }).click();
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await page.getByRole("button", { name: "Play" }).waitFor();
  const answer = await page.locator(".inspect-answer .md-block").allTextContents();
  expect(answer.join(" ").replace(/\s+/g, " ").trim()).toBe(textOf(generation).replace(/\s+/g, " ").trim());
  await page.getByRole("button", { name: "Copy curl: events" }).click();
  const curl = await page.evaluate(() => (globalThis as unknown as { copied: string[] }).copied.at(-1));
  expect(curl).toBe(`curl -N '${stage.url}/v1/generations/${generation.id}/events'`);
  await page.getByRole("link", { name: "Back to the conversation" }).click();
  await sees(page, "word80");
  await page.context().close();
});

it("a running generation is followed to its end", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("live", { pieces: words(60), holdAfter: 30 }));
  await sees(page, "word30");
  const { id } = await lastGeneration(stage, page);
  const watcher = await stage.page(`/inspect/${id}`, page.context());
  await watcher.locator(".badge.is-running").waitFor();
  await until("the words so far", async () =>
    (await watcher.locator(".inspect-answer").textContent())?.includes("word30"),
  );
  stage.upstream.go("live");
  await watcher.locator(".badge.is-completed").waitFor();
  await until("the rest", async () =>
    (await watcher.locator(".inspect-answer").textContent())?.includes("word60"),
  );
  await page.context().close();
});

it("one that does not exist is said not to", async () => {
  const page = await stage.page("/inspect/gen_nowhere");
  await page.getByText("This generation cannot be shown.").waitFor();
  await page.context().close();
});
