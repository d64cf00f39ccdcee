/** Servers that offer less than the app can use, and what the app says about it. */

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { say, settled, until, words } from "./person";
import { CUT, startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => expect(stage.complaints()).toEqual([]));

const NO_BACKGROUND = "This server does not finish answers in the background.";
const NO_TOOLS = "Tools are not available on this server.";
const IN_BACKGROUND = "the server finishes the answer and keeps it for you";

/** A page of a server with these capabilities; 404 for an old server without them. */
async function pageOf(offered: object | 404): Promise<Page> {
  const context = await stage.context();
  await context.route("**/v1/capabilities", (route) =>
    offered === 404 ? route.fulfill({ status: 404, body: "" }) : route.fulfill({ json: offered }),
  );
  const page = await context.newPage();
  stage.allow(page, /status of 404/);
  await page.goto(stage.url);
  return page;
}

it("b9_a_server_that_offers_everything_gets_no_note", async () => {
  const page = await pageOf({ background: true, tools: ["bash"] });
  await page.getByText(IN_BACKGROUND).waitFor();
  expect(await page.getByText(NO_TOOLS).count()).toBe(0);
  expect(await page.getByText(NO_BACKGROUND).count()).toBe(0);
  await page.context().close();
});

it("b9_without_background_mode_the_app_says_so, and makes no promises about it", async () => {
  for (const offered of [404, { name: "other" }] as const) {
    const page = await pageOf(offered);
    await page.getByText(NO_BACKGROUND).waitFor();
    await page.getByText(NO_TOOLS).waitFor();
    expect(await page.getByText(IN_BACKGROUND).count()).toBe(0);
    // The note is at the message field as long as the conversation is open.
    await say(page, stage.upstream.script("foreground", { pieces: words(5) }));
    await settled(page);
    await page.getByText(NO_BACKGROUND).waitFor();
    stage.allow(page, CUT);
    await page.context().setOffline(true);
    stage.site.cut(true);
    await page.locator(".connection-note.is-offline").waitFor();
    expect(await page.locator(".connection-note").textContent()).toBe("You are offline.");
    stage.site.cut(false);
    await page.context().close();
  }
});

it("drafts and choices of one user are not shown to another", async () => {
  const page = await pageOf({ background: true, user: "ann" });
  const field = page.getByRole("textbox", { name: "Message" });
  const draftOf = (user: string): Promise<string | null> =>
    page.evaluate((user) => localStorage.getItem(`outlast:${user}:draft:new`), user);
  await until("the user is known", async () => {
    await field.fill("a secret of Ann's");
    return (await draftOf("ann")) !== null;
  });
  const become = async (user: string): Promise<void> => {
    await page.context().unroute("**/v1/capabilities");
    await page
      .context()
      .route("**/v1/capabilities", (route) => route.fulfill({ json: { background: true, user } }));
    const known = page.waitForResponse("**/v1/capabilities");
    await page.goto(stage.url);
    await known;
  };
  await become("ben");
  await field.fill("mine");
  await until("Ben's draft", async () => (await draftOf("ben")) === "mine");
  expect(await draftOf("ann")).toBe("a secret of Ann's");
  await become("ann");
  await until("Ann's draft", async () => (await field.inputValue()) === "a secret of Ann's");
  await page.context().close();
});
