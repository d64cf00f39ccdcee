/** Answers that do not simply complete, and what a person can do about them. */

import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { agrees, note, say, sees, settled, shown, textOf, words } from "./person";
import { CUT, startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage({ OUTLAST_RECOVERY__MODE: "ask" })));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

const all = words(60).join("").replace(/\s+/g, " ").trim();

describe("an answer", () => {
  it("that is retried says so, waits, and shows no duplicates", async () => {
    const page = await stage.page();
    const fails = { times: 1, status: 503, retryAfter: 2 };
    await say(
      page,
      stage.upstream.script("retried", { pieces: words(60), fails, breaks: { times: 2, after: 20 } }),
    );
    await page.getByText(/Retrying in \d+ s \(attempt 2\)/).waitFor();
    // A page that is opened during the wait shows it too.
    await page.reload();
    await page.getByText(/Retrying in \d+ s \(attempt 2\)/).waitFor();
    await settled(page);
    await sees(page, "word60");
    const { attempt } = await agrees(stage, page);
    expect(attempt).toBe(3);
    expect(await page.locator("[data-role=assistant]").count()).toBe(1);
    await page.context().close();
  });

  it("that failed is generated again on Retry", async () => {
    const page = await stage.page();
    await say(
      page,
      stage.upstream.script("again-400", { pieces: words(60), fails: { times: 1, status: 400 } }),
    );
    await page.getByText("The answer failed", { exact: true }).waitFor();
    await page.locator(".turn-text", { hasText: "400" }).waitFor();
    await page.reload();
    await page.getByRole("button", { name: "Retry" }).click();
    await settled(page);
    await sees(page, "word60");
    await agrees(stage, page);
    await page.context().close();
  });

  it("that failed in the middle continues from there on Continue", async () => {
    const page = await stage.page();
    await say(page, stage.upstream.script("goes-on", { pieces: words(60), breaks: { times: 3, after: 20 } }));
    await page.getByText("The answer failed", { exact: true }).waitFor();
    expect(await shown(page)).toBe(words(20).join("").trim());
    await page.getByRole("button", { name: "Continue" }).click();
    await sees(page, "word60");
    await settled(page);
    expect((await agrees(stage, page)).retryOf?.mode).toBe("continue");
    const blocks = await page.locator("[data-role=assistant] .md-block").allTextContents();
    expect(blocks.join(" ").replace(/\s+/g, " ").trim()).toBe(all);
    await page.context().close();
  });

  it("that was interrupted is generated again on Resume", async () => {
    const page = await stage.page();
    await say(page, stage.upstream.script("resume", { pieces: words(60), everyMs: 2, holdAfter: 30 }));
    await sees(page, "word30");
    stage.allow(page, CUT);
    await stage.server.kill();
    await note(page, "Connection lost");
    await stage.server.restart();
    await page.getByText("The answer was interrupted", { exact: true }).waitFor();
    await page.reload();
    await sees(page, "word30");
    stage.upstream.go("resume");
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await sees(page, "word60");
    await settled(page);
    await agrees(stage, page);
    expect(await page.locator("[data-role=assistant]").count()).toBe(1);
    await page.context().close();
  });

  it("that was interrupted stays as it is on Dismiss", async () => {
    const page = await stage.page();
    await say(page, stage.upstream.script("dismiss", { pieces: words(60), everyMs: 2, holdAfter: 30 }));
    await sees(page, "word30");
    stage.allow(page, CUT);
    await stage.server.kill();
    await stage.server.restart();
    await page.getByRole("button", { name: "Dismiss", exact: true }).click();
    await page.getByText("Dismissed after an interruption.").waitFor();
    expect(await agrees(stage, page)).toMatchObject({ status: "cancelled", endReason: "dismissed" });
    await page.context().close();
  });

  it("is stopped by Escape, and by Stop after a reload", async () => {
    const page = await stage.page();
    for (const name of ["escape", "button"]) {
      await say(page, stage.upstream.script(name, { pieces: words(60), holdAfter: 30 }));
      await sees(page, "word30");
      if (name === "escape") await page.keyboard.press("Escape");
      else {
        await page.reload();
        await page.getByRole("button", { name: "Stop" }).click();
      }
      await page.getByText("Stopped.", { exact: true }).waitFor();
      expect(await agrees(stage, page)).toMatchObject({ status: "cancelled", endReason: "user" });
    }
    await page.context().close();
  });

  it("with a long thought shows the thought folded", async () => {
    const page = await stage.page();
    const thinking = ["First I ", "weigh ", "the question."];
    await say(
      page,
      stage.upstream.script("thought", { thinking, pieces: words(5), everyMs: 60, holdAfter: 0 }),
    );
    await page.getByText("Thinking…").waitFor();
    stage.upstream.go("thought");
    await settled(page);
    await page.reload();
    await page.getByText(/^Thought for /).click();
    await page.getByText("First I weigh the question.").waitFor();
    await page.context().close();
  });
});

describe("a message while another is answered", () => {
  it("waits for its turn, or is removed from the queue", async () => {
    const page = await stage.page();
    await say(page, stage.upstream.script("busy", { pieces: words(60), holdAfter: 30 }));
    await sees(page, "word30");
    await say(page, "This one is taken back");
    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByText("Queued").waitFor({ state: "detached" });
    await page
      .getByRole("textbox", { name: "Message" })
      .fill(stage.upstream.script("next", { pieces: words(9) }));
    await page.getByRole("button", { name: "Queue" }).click();
    await page.getByText("Queued").waitFor();
    stage.upstream.go("busy");
    await page.waitForFunction(() => document.querySelectorAll("[data-role=assistant]").length === 2);
    await settled(page);
    expect(textOf(await agrees(stage, page))).toBe(words(9).join(""));
    await page.context().close();
  });

  it("takes its place on Interrupt", async () => {
    const page = await stage.page();
    await say(page, stage.upstream.script("old", { pieces: words(60), holdAfter: 30 }));
    await sees(page, "word30");
    await page
      .getByRole("textbox", { name: "Message" })
      .fill(stage.upstream.script("new", { pieces: words(9) }));
    await page.getByRole("button", { name: "Interrupt" }).click();
    await page.waitForFunction(() => document.querySelectorAll("[data-role=assistant]").length === 2);
    await settled(page);
    await agrees(stage, page);
    await page.locator(".ending", { hasText: "Stopped" }).waitFor({ state: "attached" });
    await page.context().close();
  });

  it("that cannot be sent stays, and is sent once on Try again", async () => {
    const page = await stage.page();
    const body = '{"status":429,"code":"limit_reached","detail":"too many generations are under way"}';
    await page.route("**/v1/generations", (route) =>
      route.fulfill({ status: 429, contentType: "application/problem+json", body }),
    );
    stage.allow(page, /status of 429/);
    await say(page, stage.upstream.script("again", { pieces: words(9) }));
    await page.getByText("Not sent. Too many generations are under way.").waitFor();
    // A reload does not send it again by itself.
    await page.reload();
    await page.getByText("Not sent.").waitFor();
    expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toBe("");
    await page.unroute("**/v1/generations");
    await page.getByRole("button", { name: "Try again" }).click();
    await sees(page, "word9");
    await settled(page);
    await agrees(stage, page);
    expect(await page.locator("[data-role=user]").count()).toBe(1);
    await page.context().close();
  });
});
