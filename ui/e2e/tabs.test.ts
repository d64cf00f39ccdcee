/** All tabs show the same, and any of them may act. */

import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { agrees, say, sees, settled, until, words } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

const held = (name: string): string =>
  stage.upstream.script(name, { pieces: words(120), everyMs: 4, holdAfter: 60 });

describe("several tabs", () => {
  it("show the same answer, and Stop in one stops it in both", async () => {
    const context = await stage.context();
    const here = await stage.page("/", context);
    await say(here, held("two"));
    await sees(here, "word30");
    const there = await stage.page(new URL(here.url()).pathname, context);
    await Promise.all([sees(here, "word60"), sees(there, "word60")]);
    await there.getByRole("button", { name: "Stop" }).click();
    for (const tab of [here, there]) {
      await tab.getByText("Stopped.", { exact: true }).waitFor();
      expect((await agrees(stage, tab)).status).toBe("cancelled");
    }
    stage.upstream.go("two");
    await context.close();
  });

  it("show a message that was sent in another tab, once", async () => {
    const context = await stage.context();
    const here = await stage.page("/", context);
    await say(here, stage.upstream.script("first", { pieces: words(10) }));
    await settled(here);
    const there = await stage.page(new URL(here.url()).pathname, context);
    await sees(there, "word10");
    await say(there, held("second"));
    await sees(here, "word60");
    stage.upstream.go("second");
    for (const tab of [here, there]) {
      await settled(tab);
      await sees(tab, "word120");
      await agrees(stage, tab);
      expect(await tab.locator("[data-role=user]").count()).toBe(2);
    }
    await context.close();
  });

  it("do not starve each other when there are eight", async () => {
    const context = await stage.context();
    const first = await stage.page("/", context);
    await say(first, held("eight"));
    await sees(first, "word60");
    const path = new URL(first.url()).pathname;
    const tabs = [first];
    for (let count = 1; count < 8; count += 1) tabs.push(await stage.page(path, context));
    await Promise.all(tabs.map((tab) => sees(tab, "word60")));
    // With six streams open, a browser would let a seventh request wait forever.
    const answered = tabs.map((tab) => tab.evaluate(() => fetch("/v1/models").then(({ status }) => status)));
    expect(await Promise.all(answered)).toEqual(tabs.map(() => 200));
    stage.upstream.go("eight");
    for (const tab of tabs) {
      await settled(tab);
      await agrees(stage, tab);
    }
    const last = tabs.at(-1) ?? first;
    await say(last, stage.upstream.script("after", { pieces: words(5) }));
    await Promise.all(
      tabs.map(async (tab) => {
        await until(
          "the second answer",
          async () => (await tab.locator("[data-role=assistant]").count()) === 2,
        );
        await settled(tab);
        await agrees(stage, tab);
      }),
    );
    await context.close();
  });
});
