/** A message arrives exactly once, whatever happens to the page, and a draft that was not sent stays a draft. */

import { OutlastClient } from "@outlast/client";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { agrees, say, sees, settled, until, words } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

const field = (page: Page) => page.getByRole("textbox", { name: "Message" });
const client = (): OutlastClient => new OutlastClient({ baseUrl: stage.server.url });

/** The server receives what is sent, but its responses are lost. */
async function loseResponses(page: Page): Promise<() => boolean> {
  let heard = false;
  await page.route("**/v1/generations", async (route) => {
    await route.fetch();
    heard = true;
  });
  return () => heard;
}

it("a first message whose response was lost with the page is there once when the app is opened again", async () => {
  const page = await stage.page();
  const before = (await client().listConversations()).data.length;
  const heard = await loseResponses(page);
  await say(page, stage.upstream.script("first", { pieces: words(9) }));
  await until("the server has it", heard);
  await page.goto("about:blank");
  await page.unroute("**/v1/generations");
  await page.goto(stage.url);
  await sees(page, "word9");
  await settled(page);
  await agrees(stage, page);
  expect(await page.locator("[data-role=user]").count()).toBe(1);
  expect(await field(page).inputValue()).toBe("");
  expect((await client().listConversations()).data.length).toBe(before + 1);
  // It is neither a draft now, nor sent again.
  const other = await stage.page("/", page.context());
  await other.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  expect(await field(other).inputValue()).toBe("");
  await page.context().close();
});

it("a message of a page that is still open is not sent by another page", async () => {
  const context = await stage.context();
  const here = await stage.page("/", context);
  await loseResponses(here);
  await say(here, "Only mine");
  const there = await stage.page("/", context);
  await there.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  await there.waitForTimeout(1_500);
  expect(new URL(there.url()).pathname).toBe("/");
  expect(await field(there).inputValue()).toBe("");
  await context.close();
});

it("a message that failed and a draft typed after it both survive a reload", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("before", { pieces: words(5) }));
  await settled(page);
  const body = '{"status":429,"code":"limit_reached","detail":"too many generations are under way"}';
  await page.route("**/v1/generations", (route) =>
    route.fulfill({ status: 429, contentType: "application/problem+json", body }),
  );
  stage.allow(page, /429/);
  await say(page, stage.upstream.script("failed", { pieces: words(7) }));
  await page.getByText("Not sent.").waitFor();
  await field(page).fill("and this");
  await page.reload();
  await page.getByText("Not sent.").waitFor();
  expect(await field(page).inputValue()).toBe("and this");
  // The person was told that it failed, so it is shown again and sent only on request.
  await page.unroute("**/v1/generations");
  await page.reload();
  await page.getByText("Not sent.").waitFor();
  expect(await page.locator("[data-message][data-role=user]").count()).toBe(1);
  await page.getByRole("button", { name: "Try again" }).click();
  await sees(page, "word7");
  await settled(page);
  expect(await page.locator("[data-role=user]").count()).toBe(2);
  await page.reload();
  await sees(page, "word7");
  expect(await page.locator("[data-role=user]").count()).toBe(2);
  expect(await field(page).inputValue()).toBe("and this");
  await page.context().close();
});

it("a message that is discarded leaves nothing behind", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("kept", { pieces: words(5) }));
  await settled(page);
  const body = '{"status":429,"code":"limit_reached","detail":"too many generations are under way"}';
  await page.route("**/v1/generations", (route) =>
    route.fulfill({ status: 429, contentType: "application/problem+json", body }),
  );
  stage.allow(page, /429/);
  await say(page, "Not this one");
  await page.getByRole("button", { name: "Discard" }).click();
  await page.getByText("Not this one").waitFor({ state: "detached" });
  expect(await page.getByText("That did not work.").count()).toBe(0);
  await page.unroute("**/v1/generations");
  await page.reload();
  await sees(page, "word5");
  expect(await page.locator("[data-role=user]").count()).toBe(1);
  await page.context().close();
});

it("a draft belongs to the tab that writes it: a tab with an empty field does not remove it", async () => {
  const context = await stage.context();
  const empty = await stage.page("/", context);
  await field(empty).waitFor();
  const writing = await stage.page("/", context);
  await field(writing).fill("half a thought");
  await writing.goto("about:blank");
  await empty.goto("about:blank");
  const again = await stage.page("/", context);
  expect(await field(again).inputValue()).toBe("half a thought");
  await context.close();
});

it("a message sent offline goes out when the network is back, however long that takes", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("online", { pieces: words(5) }));
  await settled(page);
  stage.allow(page, /ERR_INTERNET_DISCONNECTED/);
  await page.context().setOffline(true);
  await say(page, stage.upstream.script("offline", { pieces: words(8) }));
  await page.waitForTimeout(12_000);
  await page.getByText("Sending…").waitFor();
  expect(await page.getByText("Not sent.").count()).toBe(0);
  await page.context().setOffline(false);
  await sees(page, "word8");
  await settled(page);
  await agrees(stage, page);
  expect(await page.locator("[data-role=user]").count()).toBe(2);
  await page.context().close();
});

it("Stop works right after sending, before any of the answer has arrived", async () => {
  const page = await (await stage.context()).newPage();
  // Before the page loads, so that no connection gets through.
  await page.routeWebSocket(/\/ws$/, () => {});
  await page.route("**/events*", () => {});
  await page.goto(stage.url);
  await say(page, stage.upstream.script("at-once", { pieces: words(60), holdAfter: 10 }));
  await page.waitForURL(/\/c\/conv_/);
  await page.getByRole("button", { name: "Stop" }).click();
  const [, id] = /\/c\/(.+)$/.exec(page.url()) ?? [];
  await until("it is stopped", async () => {
    const { data } = await client().listGenerations({ conversationId: id ?? "" });
    return data[0]?.status === "cancelled";
  });
  expect(await page.getByText("That did not work.").count()).toBe(0);
  await page.context().close();
});

it("the chosen model is used even before the list of models is loaded", async () => {
  const page = await stage.page();
  await page.getByLabel("Model").selectOption("demo");
  let answer = (): void => {};
  await page.route("**/v1/models", async (route) => {
    await new Promise<void>((resolve) => (answer = resolve));
    await route.continue().catch(() => {});
  });
  await page.reload();
  await say(page, "Say 12 words");
  await settled(page);
  const [, id] = /\/c\/(.+)$/.exec(page.url()) ?? [];
  const { data } = await client().listGenerations({ conversationId: id ?? "" });
  expect(data[0]).toMatchObject({ model: "demo", status: "completed" });
  answer();
  await page.context().close();
});
