/** Actions and observations of a person in front of the page. */

import { expect } from "vitest";
import type { Page } from "playwright-core";
import type { Generation, View } from "@outlast/client";
import type { Stage } from "./stage";

export async function say(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.keyboard.press("Enter");
}

/** The last answer as the page shows it, without Markdown. */
export function shown(page: Page): Promise<string> {
  return page.evaluate(() => {
    const answers = document.querySelectorAll(".assistant-message");
    const blocks = answers[answers.length - 1]?.querySelectorAll(".md-block") ?? [];
    const texts = [...blocks].map((block) => block.textContent);
    return texts.join(" ").replace(/\s+/g, " ").trim();
  });
}

/** Waits until the last answer contains a text. */
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

/** Waits for a note about the connection. */
export async function note(page: Page, text: string): Promise<void> {
  await page.locator(".connection-note", { hasText: text }).waitFor();
}

/** Waits until nothing in the page is being sent, waited for or written. */
export async function settled(page: Page): Promise<void> {
  await page.waitForFunction(
    () =>
      document.querySelector(".assistant-message, .turn-card, .turn-note") !== null &&
      document.querySelector("[aria-busy=true], .working, .is-stop, [data-pending]") === null,
    null,
    { polling: 30 },
  );
}

/** The exact text of the last answer, from its copy button. */
export async function copied(page: Page): Promise<string> {
  // Clicked by script: in a background tab a real click waits for frames that rarely come.
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
  const parts = generation.contentParts ?? [];
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/**
 * Checks that every message in the page is the same as on the server: no gaps, no duplicates. Answers must be plain
 * text; pass `last` to check only that many messages at the end.
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

/** Every message in the page, including those being sent, without Markdown. */
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

/** Numbered words, so that a missing or repeated one shows. */
export function words(count: number, from = 1): readonly string[] {
  return Array.from({ length: count }, (_, place) => {
    const number = from + place;
    return `word${number}${number % 40 === 0 ? "\n\n" : " "}`;
  });
}

export async function until<T>(
  what: string,
  probe: () => T | Promise<T>,
  limitMs = 45_000,
): Promise<NonNullable<T>> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`timed out waiting for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
