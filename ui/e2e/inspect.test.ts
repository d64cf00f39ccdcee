/** The inspector, for running and finished generations. */

import type { OutlastEvent } from "@outlast/client";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { lastGeneration, say, sees, settled, textOf, until, words } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
// Events are removed when the server starts, so the others see theirs.
beforeAll(async () => void (stage = await startStage({ OUTLAST_RETENTION__COMPLETED: "1ms" })));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

it("a finished generation is shown with its attempts, and replayed", async () => {
  const page = await stage.page();
  const script = { pieces: words(80), everyMs: 4, breaks: { times: 1, after: 20 } };
  await say(page, stage.upstream.script("inspected", script));
  await sees(page, "word80");
  await settled(page);
  const generation = await lastGeneration(stage, page);
  await page.getByRole("link", { name: "Inspect this answer" }).click();
  await page.getByText("Its text was retracted.").waitFor();
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
  await page.getByRole("button", { name: "1×", exact: true }).click();
  await page.getByRole("button", { name: "Play" }).click();
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await page.getByRole("button", { name: "Play" }).waitFor();
  const whole = textOf(generation).replace(/\s+/g, " ").trim();
  await until("the whole answer", async () => {
    const answer = await page.locator(".inspect-answer .md-block").allTextContents();
    return answer.join(" ").replace(/\s+/g, " ").trim() === whole;
  });
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
  // There is a link even while the answer is being written.
  await page.getByRole("link", { name: "Inspect this answer" }).waitFor();
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

it("eight tabs that inspect a running generation do not starve each other", async () => {
  const context = await stage.context();
  const page = await stage.page("/", context);
  await say(page, stage.upstream.script("starved", { pieces: words(60), holdAfter: 30 }));
  await sees(page, "word30");
  const { id } = await lastGeneration(stage, page);
  const tabs: Page[] = [];
  for (let count = 0; count < 8; count += 1) {
    const tab = await stage.page(`/inspect/${id}`, context);
    await tab.locator(".inspect-answer", { hasText: "word30" }).waitFor();
    // Only the front tab is visible. Headless browsers do not report that by themselves.
    await tab.evaluate(hide, true);
    tabs.push(tab);
  }
  const answer = await page.evaluate(() => fetch("/v1/models").then(({ status }) => status));
  expect(answer).toBe(200);
  stage.upstream.go("starved");
  const last = tabs[3] ?? page;
  await last.evaluate(hide, false);
  await last.locator(".inspect-answer", { hasText: "word60" }).waitFor();
  await last.locator(".badge.is-completed").waitFor();
  await context.close();
});

it("the focus returns to the list when an event is closed", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("focus", { pieces: words(6) }));
  await settled(page);
  await page.getByRole("link", { name: "Inspect this answer" }).click();
  await page.locator(".event").first().click();
  await page.getByRole("button", { name: "Close event" }).press("Enter");
  expect(await page.evaluate(() => document.activeElement?.getAttribute("aria-label"))).toBe("Events");
  await page.context().close();
});

/** What a browser does to a background tab. */
function hide(isHidden: boolean): void {
  Object.defineProperty(document, "visibilityState", {
    configurable: true,
    get: () => (isHidden ? "hidden" : "visible"),
  });
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
}

it("g13_a_generation_whose_events_are_gone_shows_its_messages", async () => {
  const chat = await stage.page();
  await say(chat, stage.upstream.script("trimmed", { pieces: words(12) }));
  await settled(chat);
  const { id } = await lastGeneration(stage, chat);
  await chat.context().close();
  await stage.server.kill();
  await stage.server.restart();
  await until("the events are removed", async () => {
    const response = await fetch(`${stage.server.url}/v1/generations/${id}/events?format=json`);
    return ((await response.json()) as { data: OutlastEvent[] }).data.length === 0;
  });
  const page = await (await stage.context()).newPage();
  await page.goto(`${stage.url}/inspect/${id}`);
  await page.getByText("The events of this generation are no longer stored.").waitFor();
  await page.locator(".inspect-answer", { hasText: "word12" }).waitFor();
  await page.context().close();
});

it("a generation that does not exist is reported as such", async () => {
  const page = await (await stage.context()).newPage();
  stage.allow(page, /status of 404/);
  await page.goto(`${stage.url}/inspect/gen_nowhere`);
  await page.getByText("Could not load this generation.").waitFor();
  await page.context().close();
});
