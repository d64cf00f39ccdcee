/** Accessibility: keyboard only, screen reader, phone, light and dark. */

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { barriers } from "./axe";
import { agrees, say, sees, settled, until, words } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

const RICH =
  "# Title\n\nSome **words** and `code`, [a link](https://example.org).\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\nlet a = 1;\n```\n";

describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
  it.each([1280, 390])("no page has an accessibility violation at %i pixels", async (width) => {
    const context = await stage.context({
      colorScheme,
      viewport: { width, height: 800 },
      reducedMotion: "reduce",
    });
    const page = await stage.page("/", context);
    expect(await barriers(page)).toEqual([]);
    const name = `rich-${colorScheme}-${width}`;
    await say(page, stage.upstream.script(name, { thinking: ["hm"], pieces: [RICH, "end"], holdAfter: 1 }));
    await sees(page, "let a = 1;");
    await page.getByRole("textbox", { name: "Message" }).fill("next");
    await page.getByRole("button", { name: "Interrupt" }).waitFor();
    expect(await barriers(page)).toEqual([]);
    stage.upstream.go(name);
    await settled(page);
    expect(await barriers(page)).toEqual([]);
    if (width === 390) {
      await page.getByRole("button", { name: "Show conversations" }).click();
      await page.locator(".conversation-row").first().waitFor();
      expect(await barriers(page)).toEqual([]);
      await page.getByRole("button", { name: "Close conversations" }).click();
    }
    const failing = stage.upstream.script(`bad-${name}`, { pieces: [], fails: { times: 9, status: 400 } });
    await page.getByRole("textbox", { name: "Message" }).fill(failing);
    await page.keyboard.press("Enter");
    await page.getByText("The answer failed", { exact: true }).waitFor();
    expect(await barriers(page)).toEqual([]);
    await page
      .getByRole("link", { name: /Inspect/ })
      .last()
      .click();
    await page.locator(".event").first().click();
    expect(await barriers(page)).toEqual([]);
    // No horizontal scrolling.
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
    await context.close();
  });
});

it("everything can be done with the keyboard, and the focus is always visible", async () => {
  const page = await stage.page();
  await until("the field has the focus", async () => (await focused(page)) === "Message");
  await page.keyboard.type(stage.upstream.script("keys", { pieces: words(30), holdAfter: 20 }));
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("a second line");
  await page.keyboard.press("Enter");
  await sees(page, "word20");
  await page.keyboard.press("Escape");
  await page.getByText("Stopped.", { exact: true }).waitFor();
  await agrees(stage, page);
  expect(await page.locator(".bubble").textContent()).toBe("script:keys\na second line");
  await page.keyboard.press("Control+k");
  expect(await focused(page)).toBe("Search conversations");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+Shift+O");
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  await page.goBack();
  await sees(page, "word20");
  await page.locator(".skip-link").focus();
  const seen = new Set<string>();
  for (let count = 0; count < 30; count += 1) {
    seen.add(await focused(page));
    const isVisible = await page.evaluate(() => {
      const active = document.activeElement;
      if (active === null || active === document.body) return true;
      const ring = (element: Element): boolean => getComputedStyle(element).outlineStyle !== "none";
      // A field within a frame may show the focus at the frame.
      return (
        ring(active) ||
        active.closest(".search, .composer-box, .rename") !== null ||
        active.matches(".skip-link")
      );
    });
    expect(isVisible, `focus at ${[...seen].at(-1)}`).toBe(true);
    await page.keyboard.press("Tab");
  }
  for (const name of [
    "New chat",
    "Search conversations",
    "Messages",
    "Copy answer",
    "Retry",
    "Continue",
    "Message",
  ])
    expect([...seen]).toContain(name);
  await page.context().close();
});

it("screen readers hear whole sentences, not every word", async () => {
  const page = await stage.page();
  await page.evaluate(() => {
    const said: string[] = [];
    Object.assign(globalThis, { said });
    const region = document.querySelector("[aria-live=polite]");
    new MutationObserver(() => said.push(region?.textContent ?? "")).observe(region as Node, {
      childList: true,
      characterData: true,
      subtree: true,
    });
  });
  await say(page, stage.upstream.script("aloud", { pieces: words(80), everyMs: 2 }));
  await settled(page);
  const said = await until("the end was said", () =>
    page.evaluate(() => {
      const all = (globalThis as unknown as { said: string[] }).said;
      return all.at(-1)?.includes("complete") ? all : null;
    }),
  );
  expect(said.map((words) => words.trim())).toEqual([
    "The assistant is answering.",
    "The answer is complete.",
  ]);
  await agrees(stage, page);
  await page.context().close();
});

function focused(page: Page): Promise<string> {
  return page.evaluate(() => {
    const active = document.activeElement;
    return (
      active?.getAttribute("aria-label") ??
      active?.querySelector("span")?.textContent ??
      active?.textContent ??
      ""
    );
  });
}

it("Escape closes the drawer without stopping the answer, and the focus moves in and out with it", async () => {
  const context = await stage.context({ viewport: { width: 390, height: 800 } });
  const page = await stage.page("/", context);
  await say(page, stage.upstream.script("drawer", { pieces: words(60), holdAfter: 30 }));
  await sees(page, "word30");
  await page.getByRole("button", { name: "Show conversations" }).click();
  await page.locator(".conversation-row").first().waitFor();
  expect(await page.evaluate(() => document.activeElement?.closest("nav") !== null)).toBe(true);
  // The page behind it cannot be reached.
  for (let count = 0; count < 12; count += 1) {
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.closest("main") ?? null)).toBeNull();
  }
  await page.getByRole("textbox", { name: "Search conversations" }).or(page.getByRole("searchbox")).focus();
  await page.keyboard.press("Escape");
  await page.locator(".drawer-open").waitFor({ state: "detached" });
  expect(await focused(page)).toBe("Show conversations");
  expect(await page.getByRole("button", { name: "Stop" }).count()).toBe(1);
  await page.keyboard.press("Escape");
  await page.getByText("Stopped.", { exact: true }).waitFor();
  await context.close();
});

it("conversations are renamed and deleted, and model and theme chosen, with the keyboard alone", async () => {
  const page = await stage.page();
  stage.allow(page, /\b404\b/);
  await say(page, stage.upstream.script("named", { pieces: words(3) }));
  await settled(page);
  const row = page.locator(".conversation-row").first();
  await until("a title", async () => !(await row.textContent())?.includes("New chat"));
  await row.getByRole("link").focus();
  await page.keyboard.press("Tab");
  expect(await focused(page)).toMatch(/^Rename /);
  await page.keyboard.press("Enter");
  await page.keyboard.type("Another name");
  await page.keyboard.press("Enter");
  await until("the focus is back", async () => (await focused(page)) === "Rename Another name");
  await page.keyboard.press("Tab");
  expect(await focused(page)).toBe("Delete Another name");
  await page.keyboard.press("Enter");
  await page.locator("dialog[open]").waitFor();
  await page.keyboard.press("Escape");
  await until("the focus is back", async () => (await focused(page)) === "Delete Another name");
  await page.keyboard.press("Enter");
  await page.locator("dialog[open]").waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  await until("the field has the focus", async () => (await focused(page)) === "Message");
  await page.getByRole("button", { name: /^Theme/ }).focus();
  await page.keyboard.press("Enter");
  expect(await focused(page)).toMatch(/^Theme: light/);
  await page.keyboard.press("Space");
  expect(await focused(page)).toMatch(/^Theme: dark/);
  await page.getByLabel("Model").focus();
  await page.keyboard.press("d");
  await page.keyboard.press("e");
  await page.keyboard.press("m");
  await until("the model", async () => (await page.getByLabel("Model").inputValue()) === "demo");
  await page.context().close();
});

it("the focus stays nearby after stopping and retrying with the keyboard", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("stays", { pieces: words(40), holdAfter: 20 }));
  await sees(page, "word20");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Retry" }).press("Enter");
  await page.getByRole("button", { name: "Retry" }).waitFor({ state: "detached" });
  await until("the focus is near", async () => (await focused(page)) === "Messages");
  stage.upstream.go("stays");
  await settled(page);
  await page.context().close();
});
