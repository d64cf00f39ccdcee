/** Hostile text from a model: nothing runs, nothing is loaded, and the page stays usable. */

import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { agrees, copied, lastGeneration, say, sees, settled, textOf, words } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
// Complaints include foreign requests, dialogs and page errors.
afterEach(() => expect(stage.complaints()).toEqual([]));

const HOSTILE = `<script>alert(1)</script><img src=x onerror="alert(2)">
<iframe src="https://evil.example/"></iframe>

<svg onload=alert(3)> [click](javascript:alert(4)) ![pixel](https://evil.example/pixel.png)

[![nested](https://evil.example/n.png)](data:text/html,<script>alert(5)</script>)

<style>* { display: none !important }</style> <base href="https://evil.example/">

| <img src=y onerror=alert(6)> | \u202egnp.exe |
|---|---|
| <a href="javascript:alert(7)">x</a> | \u2066isolated\u2069 |

\`\`\`html"><script>alert(8)</script>
if (isAdmin\u202e \u2066// check\u2069 \u2066) {
\`\`\`

**never closed [link](https://evil.example/unfinished`;

it("hostile text is only text, at every moment of the stream", async () => {
  const page = await stage.page();
  const pieces = HOSTILE.match(/[\s\S]{1,7}/g) ?? [];
  await say(page, stage.upstream.script("hostile", { pieces, everyMs: 3 }));
  await settled(page);
  expect(await copied(page)).toBe(textOf(await lastGeneration(stage, page)));
  const found = await page.evaluate(() => {
    const message = document.querySelector(".assistant-message");
    return {
      elements: message?.querySelectorAll("script, img, iframe, style, base, object, embed, form").length,
      handlers: [...(message?.querySelectorAll("*") ?? [])].flatMap((element) =>
        element.getAttributeNames().filter((name) => name.startsWith("on")),
      ),
      links: [...(message?.querySelectorAll("a[href]") ?? [])].map(
        (link) => new URL((link as HTMLAnchorElement).href).protocol,
      ),
      turns: /[\u202a-\u202e\u2066-\u2069]/.test(message?.textContent ?? ""),
    };
  });
  expect(found).toMatchObject({ elements: 0, handlers: [], turns: false });
  for (const protocol of found.links) expect(["https:", "http:"]).toContain(protocol);
  await page.getByText("<script>alert(1)</script>").first().waitFor();
  await say(page, stage.upstream.script("still", { pieces: words(5) }));
  await sees(page, "word5");
  await settled(page);
  await agrees(stage, page, 2);
  await page.context().close();
});

it("a line of a megabyte leaves the page usable", async () => {
  const page = await stage.page();
  const line = "0123456789abcdef".repeat(1_024);
  await say(
    page,
    stage.upstream.script("line", { pieces: Array.from({ length: 64 }, () => line), everyMs: 15 }),
  );
  await settled(page);
  expect(await copied(page)).toBe(textOf(await lastGeneration(stage, page)));
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  const begin = Date.now();
  await say(page, stage.upstream.script("after-line", { pieces: words(5) }));
  await sees(page, "word5");
  expect(Date.now() - begin).toBeLessThan(5_000);
  await settled(page);
  await agrees(stage, page, 2);
  await page.context().close();
});

it("titles and errors are only text too", async () => {
  const page = await stage.page();
  await say(page, '<img src=x onerror="alert(1)"> \u202eevil script:titled');
  await settled(page);
  await page.locator(".page-head h1", { hasText: "<img src=x onerror" }).waitFor();
  await page.locator(".conversation-row", { hasText: "<img src=x onerror" }).first().waitFor();
  expect(await page.locator("img").count()).toBe(0);
  stage.allow(page, /\b404\b/);
  await page.goto(`${stage.url}/c/${encodeURIComponent('"><script>alert(1)</script>')}`);
  await page.getByText("Conversation not found").waitFor();
  await page.context().close();
});
