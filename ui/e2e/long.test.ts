/** Long answers and long conversations: no long tasks, no memory growth. */

import { OutlastClient } from "@outlast/client";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { measureTasks } from "./long-tasks";
import type { LongestTask } from "./long-tasks";
import { agrees, copied, lastGeneration, say, sees, settled, textOf, until, words } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";
import { startWorker } from "./worker";

/** People notice tasks longer than this. */
const LONGEST_TASK_MS = 100;

let stage: Stage;
beforeAll(async () => void (stage = await startStage({ OUTLAST_STORE__URL: "memory:" })));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

function hasNoLongTask(what: string, { clockMs, processorMs }: LongestTask): void {
  console.log(
    `${what}: the longest task took ${clockMs} ms of wall-clock time, ${processorMs} ms of CPU time`,
  );
  expect(processorMs).toBeGreaterThan(0);
  expect(Math.min(clockMs, processorMs)).toBeLessThanOrEqual(LONGEST_TASK_MS);
}

const SECTION = `## Section

Some **bold** words, \`code\` and [a link](https://example.org/path) in a paragraph that goes on for a while, as
paragraphs of models do, with a list after it.

- one thing that is said
- another thing, with *emphasis*

| name | value |
|---|---|
| first | 1 |
| second | 2 |

\`\`\`ts
export function answer(question: string): number {
  return question.length === 0 ? 0 : 42;
}
\`\`\`

`;

function longAnswer(bytes: number): readonly string[] {
  const text = SECTION.repeat(Math.ceil(bytes / SECTION.length)).slice(0, bytes);
  return text.match(/[\s\S]{1,160}/g) ?? [];
}

/** Streams an answer below a short one, so that only the streaming is measured. */
async function stream(name: string, pieces: readonly string[], everyMs: number): Promise<LongestTask> {
  const page = await stage.page();
  await say(page, stage.upstream.script(`before-${name}`, { pieces: words(5) }));
  await settled(page);
  const longest = await measureTasks(page);
  await say(page, stage.upstream.script(name, { pieces, everyMs }));
  await until("the answer", async () => (await page.locator("[data-role=assistant]").count()) === 2);
  await settled(page);
  const found = await longest();
  expect(await copied(page)).toBe(textOf(await lastGeneration(stage, page)));
  await page.context().close();
  return found;
}

it("an answer of 200 kB streams without a long task", async () => {
  hasNoLongTask("200 kB", await stream("long", longAnswer(200_000), 5));
});

it("a code block of 200 kB streams without a long task", async () => {
  const code = `\`\`\`\n${"const value = compute(1, 2, 3); // a line of code\n".repeat(4_000)}`;
  hasNoLongTask("200 kB of code", await stream("code", code.match(/[\s\S]{1,400}/g) ?? [], 8));
});

it("10,000 messages are scrolled through, and an answer streams below them", async () => {
  const client = new OutlastClient({ baseUrl: stage.server.url });
  const { id: conversationId } = await client.createConversation({ title: "A long talk" });
  await sayMany(conversationId, 10_000);
  const page = await stage.page(`/c/${conversationId}`);
  await page.getByText("message 10000", { exact: true }).waitFor();
  await page.locator(".scroller").evaluate(async (box) => {
    const isFirst = (): boolean =>
      [...box.querySelectorAll(".bubble")].some(({ textContent }) => textContent === "message 1");
    // Each frame shows more messages; every few frames load a page from the server.
    while (!isFirst()) {
      box.scrollTo({ top: 0 });
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
  });
  expect(await page.locator(".row").count()).toBeLessThan(120);
  await page.getByRole("button", { name: "Jump to latest" }).click();
  await page.getByText("message 10000", { exact: true }).waitFor();
  const longest = await measureTasks(page);
  await say(page, stage.upstream.script("below", { pieces: words(400), everyMs: 4 }));
  await sees(page, "word400");
  await settled(page);
  hasNoLongTask("10,000 messages", await longest());
  await agrees(stage, page, 2);
  await page.context().close();
});

/** Fills a conversation. A worker is the fastest way, because no model is called. Half of its messages are tools. */
async function sayMany(conversationId: string, count: number): Promise<void> {
  const each = 400;
  for (let from = 1; from <= count; from += each) {
    const worker = await startWorker(stage, `message ${from}`, { conversationId });
    const events = [];
    for (let number = from + 1; number < from + each; number += 1) {
      const tool = { toolUseId: `call_${number}`, toolName: `message ${number}`, toolInput: {} };
      if (number % 2 === 0) events.push({ type: "chat.delta", payload: { text: `message ${number}` } });
      else events.push({ type: "tool.start", payload: tool });
    }
    await worker.say(...events, { type: "chat.done", payload: {} });
  }
}

it("the text on screen stays where it is while older messages load", async () => {
  const client = new OutlastClient({ baseUrl: stage.server.url });
  const { id: conversationId } = await client.createConversation({ title: "Anchored" });
  for (let number = 1; number <= 300; number += 1)
    await client.startGeneration({
      conversationId,
      content: `note ${number} ${"x ".repeat(number % 90)}`,
      whenBusy: "interrupt",
    });
  const page = await stage.page(`/c/${conversationId}`);
  await page.getByText(/^note 300 /).waitFor();
  const scroller = page.locator(".scroller");
  await scroller.hover();
  const jumps: number[] = [];
  for (let turn = 0; turn < 40; turn += 1) {
    // The first visible row must move by the scroll step and no more.
    const before = await scroller.evaluate((box) => {
      const edge = box.getBoundingClientRect().top;
      const row = [...box.querySelectorAll<HTMLElement>("[data-message]")].find(
        (row) => row.getBoundingClientRect().bottom > edge + 200,
      );
      return {
        id: row?.dataset["message"] ?? "",
        top: row?.getBoundingClientRect().top ?? 0,
        scroll: box.scrollTop,
      };
    });
    await page.mouse.wheel(0, -150);
    await page.evaluate(
      () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
    );
    const after = await scroller.evaluate((box, id) => {
      const row = box.querySelector(`[data-message="${id}"]`);
      return row === null ? null : row.getBoundingClientRect().top;
    }, before.id);
    if (after !== null) jumps.push(after - before.top);
  }
  for (const jump of jumps) {
    expect(jump).toBeGreaterThanOrEqual(-2);
    expect(jump).toBeLessThanOrEqual(400);
  }
  await page.context().close();
});

it("memory does not grow with replays", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("again", { pieces: longAnswer(100_000), everyMs: 3 }));
  await settled(page);
  const { id } = await lastGeneration(stage, page);
  const path = new URL(page.url()).pathname;
  const session = await page.context().newCDPSession(page);
  const heap = async (): Promise<number> => {
    await session.send("HeapProfiler.collectGarbage");
    const { usedSize } = await session.send("Runtime.getHeapUsage");
    return usedSize;
  };
  const round = async (): Promise<void> => {
    await page.getByRole("link", { name: "Inspect this answer" }).click();
    await page.locator(".badge.is-completed").waitFor();
    await page.getByRole("button", { name: "1×" }).click();
    await page.getByRole("button", { name: "Play" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await page.getByRole("link", { name: "Back to the conversation" }).click();
    await page.waitForURL(`**${path}`);
    await page.locator(".md-code").last().waitFor();
  };
  await round();
  await round();
  const before = await heap();
  for (let turn = 0; turn < 3; turn += 1) await round();
  const after = await heap();
  console.log(
    `heap after replays of ${id}: ${(before / 1e6).toFixed(1)} MB, then ${(after / 1e6).toFixed(1)} MB`,
  );
  expect(after).toBeLessThan(before * 1.25 + 2_000_000);
  await page.context().close();
});

it("a task that is too long is found by both measures", async () => {
  const page = await stage.page();
  const longest = await measureTasks(page);
  await page.evaluate(async (busyMs) => {
    const work = (): void => {
      const end = performance.now() + busyMs;
      while (performance.now() < end);
    };
    await new Promise<void>((resolve) => setTimeout(() => (work(), setTimeout(resolve, 100))));
  }, 4 * LONGEST_TASK_MS);
  const { clockMs, processorMs } = await longest();
  expect(Math.min(clockMs, processorMs)).toBeGreaterThan(LONGEST_TASK_MS);
  await page.context().close();
});
