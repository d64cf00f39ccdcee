/** What a person does and sees. */

import { expect } from "vitest";
import type { Page } from "playwright-core";
import type { Generation, View } from "@outlast/client";
import type { Stage } from "./stage";

export async function say(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.keyboard.press("Enter");
}

/** What stands in the page as the last answer, without signs of Markdown. */
export function shown(page: Page): Promise<string> {
  return page.evaluate(() => {
    const answers = document.querySelectorAll(".assistant-message");
    const blocks = answers[answers.length - 1]?.querySelectorAll(".md-block") ?? [];
    const texts = [...blocks].map((block) => block.textContent);
    return texts.join(" ").replace(/\s+/g, " ").trim();
  });
}

/** Waits until the last answer says this. */
export async function sees(page: Page, text: string): Promise<void> {
  await page.waitForFunction(
    (text) => {
      const answers = document.querySelectorAll(".assistant-message");
      const last = answers[answers.length - 1]?.textContent?.replace(/\s+/g, " ") ?? "";
      return last.includes(text);
    },
    text,
    { polling: 30 },
  );
}

/** Waits for quiet words about the connection. */
export async function note(page: Page, text: string): Promise<void> {
  await page.locator(".connection-note", { hasText: text }).waitFor();
}

/** Waits until nothing is being sent, waited for or written, anywhere in the page. */
export async function settled(page: Page): Promise<void> {
  await page.waitForFunction(
    () =>
      document.querySelector(".assistant-message, .turn-card, .turn-note") !== null &&
      document.querySelector("[aria-busy=true], .working, .is-stop, [data-pending]") === null,
    null,
    { polling: 30 },
  );
}

/** The very text of the last answer, as its copy button gives it. */
export async function copied(page: Page): Promise<string> {
  // A click of the page's own: in a tab that is not in front, a real one waits for frames that come seldom.
  await page
    .getByRole("button", { name: "Copy answer" })
    .last()
    .evaluate((button: HTMLElement) => button.click());
  return page.evaluate(() => (globalThis as unknown as { copied: string[] }).copied.at(-1) ?? "");
}

export async function lastGeneration(stage: Stage, page: Page): Promise<Generation> {
  const id = /\/c\/(.+)$/.exec(page.url())?.[1] ?? "";
  const list = await fetch(`${stage.server.url}/v1/generations?conversationId=${id}&limit=1`);
  const { data } = (await list.json()) as { data: Generation[] };
  const answer = await fetch(`${stage.server.url}/v1/generations/${data[0]?.id}`);
  return (await answer.json()) as Generation;
}

export function textOf(generation: Generation): string {
  return generation.contentParts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/**
 * The page shows what the server has, in every message from the first that is in the page to the last: no word more, no
 * word fewer, none twice. For answers in plain words; what is not may stand before the last so many messages.
 */
export async function agrees(stage: Stage, page: Page, last = Infinity): Promise<Generation> {
  const generation = await lastGeneration(stage, page);
  expect(await copied(page)).toBe(textOf(generation));
  const theirs = (await viewOf(stage, page)).messages.map(({ role, content }) => ({
    role,
    text: role === "tool" ? "" : content.replace(/\s+/g, " ").trim(),
  }));
  const ours = (await transcript(page)).slice(-last);
  expect(ours.length).toBeGreaterThan(0);
  expect(ours).toEqual(theirs.slice(-ours.length));
  return generation;
}

/** Every message in the page, also those on their way, without signs of Markdown. */
function transcript(page: Page): Promise<{ role: string; text: string }[]> {
  return page.evaluate(() =>
    [...document.querySelectorAll<HTMLElement>(".row")].map((row) => {
      const texts = [...row.querySelectorAll(".bubble, .md-block, .system-note")].map(
        (one) => one.textContent,
      );
      return { role: row.dataset["role"] ?? "", text: texts.join(" ").replace(/\s+/g, " ").trim() };
    }),
  );
}

async function viewOf(stage: Stage, page: Page): Promise<View> {
  const id = /\/c\/(.+)$/.exec(page.url())?.[1] ?? "";
  return (await (await fetch(`${stage.server.url}/v1/conversations/${id}`)).json()) as View;
}

/** Words that tell if one is missing or doubled. */
export function words(count: number, from = 1): readonly string[] {
  return Array.from({ length: count }, (_, place) => {
    const number = from + place;
    return `word${number}${number % 40 === 0 ? "\n\n" : " "}`;
  });
}

export async function until<T>(
  what: string,
  probe: () => T | Promise<T>,
  limitMs = 20_000,
): Promise<NonNullable<T>> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
