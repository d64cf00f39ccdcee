/** An answer survives whatever happens to the page, the network and the server. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { agrees, lastGeneration, note, say, sees, settled, until, words } from "./person";
import { CUT, startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

/** An answer that stops halfway until the test lets it continue. */
function held(name: string): string {
  return stage.upstream.script(name, { pieces: words(120), everyMs: 4, holdAfter: 60 });
}

describe("an answer is completed", () => {
  it("when the page is reloaded halfway", async () => {
    const page = await stage.page();
    await say(page, held("reload"));
    await sees(page, "word60");
    await page.reload();
    await sees(page, "word60");
    await page.reload();
    stage.upstream.go("reload");
    await settled(page);
    await agrees(stage, page);
    await page.context().close();
  });

  it("when the reader goes elsewhere and comes back", async () => {
    const page = await stage.page();
    await say(page, held("away"));
    await sees(page, "word60");
    const address = page.url();
    await page.getByRole("link", { name: "New chat", exact: true }).click();
    await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
    await page.goto("about:blank");
    stage.upstream.go("away");
    await page.goto(address);
    await settled(page);
    await agrees(stage, page);
    await page.context().close();
  });

  it("when the browser is closed and opened again", async () => {
    const profile = await mkdtemp(join(tmpdir(), "outlast-profile-"));
    const browser = await stage.browser(profile);
    const page = await stage.page("/", browser);
    await say(page, held("closed"));
    await sees(page, "word60");
    const address = new URL(page.url()).pathname;
    await browser.close();
    stage.upstream.go("closed");
    const another = await stage.browser(profile);
    const again = await stage.page("/", another);
    // The page of a new conversation links back to the last one.
    await again.locator(".way-back").click();
    expect(new URL(again.url()).pathname).toBe(address);
    await settled(again);
    await sees(again, "word120");
    await agrees(stage, again);
    await another.close();
    await rm(profile, { recursive: true, force: true });
  });

  it("when the device is offline for ten seconds, which the page mentions", async () => {
    const page = await stage.page();
    stage.allow(page, CUT);
    await say(page, held("offline"));
    await sees(page, "word60");
    await page.context().setOffline(true);
    stage.site.cut(true);
    await note(page, "You are offline. The server continues without you.");
    stage.upstream.go("offline");
    await page.waitForTimeout(10_000);
    // Nothing reached the page, and the server finished the answer meanwhile.
    expect(await page.locator(".assistant-message").textContent()).not.toContain("word61");
    expect((await lastGeneration(stage, page)).status).toBe("completed");
    stage.site.cut(false);
    await page.context().setOffline(false);
    await note(page, "Reconnected and up to date");
    await settled(page);
    await sees(page, "word120");
    await agrees(stage, page);
    await page.context().close();
  });

  it("when the server is killed and started again while the page is open", async () => {
    const page = await stage.page();
    stage.allow(page, CUT);
    await say(page, held("killed"));
    await sees(page, "word60");
    await stage.server.kill();
    await note(page, "Connection lost. Reconnecting…");
    stage.upstream.go("killed");
    await stage.server.restart();
    await until("the end", async () => (await page.locator(".message-foot .pulse").count()) === 0);
    await settled(page);
    const { attempt } = await agrees(stage, page);
    expect(attempt).toBeGreaterThan(1);
    await page.context().close();
  });

  it("when the tab is hidden for longer than it keeps its connection", async () => {
    const page = await stage.page();
    await say(page, stage.upstream.script("hidden", { pieces: words(40) }));
    await settled(page);
    // From here on the page's clock is under control, so that minutes pass at once.
    await page.clock.install();
    await page.reload();
    await sees(page, "word40");
    await page.evaluate(hide, true);
    for (let seconds = 0; seconds < 70; seconds += 5) {
      await page.clock.runFor(5_000);
      // The server's keep-alives come in real time: one round trip for every few seconds of the page's clock.
      await page.evaluate(() => fetch("/v1/models").then((answer) => answer.text()));
    }
    const other = await stage.page(new URL(page.url()).pathname, page.context());
    await say(other, held("hidden-2"));
    await sees(other, "word60");
    expect(await page.locator("[data-role=assistant]").count()).toBe(1);
    await page.evaluate(hide, false);
    await page.clock.resume();
    await sees(page, "word60");
    stage.upstream.go("hidden-2");
    for (const tab of [page, other]) {
      await settled(tab);
      await agrees(stage, tab);
    }
    await page.context().close();
  });
});

/** What a browser does to a background tab. */
function hide(isHidden: boolean): void {
  Object.defineProperty(document, "visibilityState", {
    configurable: true,
    get: () => (isHidden ? "hidden" : "visible"),
  });
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
}
