/** The list of conversations, drafts, the theme, and the app without a network. */

import { OutlastClient } from "@outlast/client";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { agrees, say, sees, settled, until, words } from "./person";
import { CUT, startStage } from "./stage";
import type { Stage } from "./stage";

let stage: Stage;
beforeAll(async () => void (stage = await startStage()));
afterAll(() => stage.end());
afterEach(() => {
  stage.site.cut(false);
  expect(stage.complaints()).toEqual([]);
});

it("conversations are found, renamed, deleted and loaded as far back as they go", async () => {
  const client = new OutlastClient({ baseUrl: stage.server.url });
  for (let number = 1; number <= 55; number += 1)
    await client.createConversation({ title: `Talk ${number}` });
  const page = await stage.page();
  // The tab that deletes a conversation asks for it once more and gets a 404.
  stage.allow(page, /\b404\b/);
  const rows = page.locator(".conversation-row");
  await until("a page of the list", async () => (await rows.count()) === 50);
  expect(await rows.first().textContent()).toContain("Talk 55");
  await page.getByRole("button", { name: "Load more" }).click();
  await until("all of the list", async () => (await rows.count()) === 55);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("talk 17");
  await until("what was searched", async () => (await rows.count()) === 1);
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/c\/conv_/);
  await rows.first().hover();
  await page.getByRole("button", { name: "Rename Talk 17" }).click();
  await page.keyboard.type("Talk about talk 17 again");
  await page.keyboard.press("Enter");
  await page.locator(".page-head h1", { hasText: "Talk about talk 17 again" }).waitFor();
  await rows.first().hover();
  await page.getByRole("button", { name: "Delete Talk about talk 17 again" }).click();
  await page.getByRole("button", { name: "Cancel" }).click();
  expect(await rows.count()).toBe(1);
  await rows.first().hover();
  await page.getByRole("button", { name: "Delete Talk about talk 17 again" }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  await page.getByText("No matching conversations.").waitFor();
  await page.context().close();
});

it("an empty name clears the title", async () => {
  const client = new OutlastClient({ baseUrl: stage.server.url });
  const { id } = await client.createConversation({ title: "Named by hand" });
  const page = await stage.page();
  const row = page.locator(".conversation-row", { hasText: "Named by hand" });
  await row.hover();
  await row.getByRole("button", { name: "Rename Named by hand" }).click();
  const field = page.getByRole("textbox", { name: "New name" });
  expect(await field.inputValue()).toBe("Named by hand");
  await field.fill("");
  await field.press("Enter");
  await row.waitFor({ state: "detached" });
  await page.locator(".conversation-row", { hasText: "New chat" }).waitFor();
  expect((await client.getConversation(id)).conversation.title).toBeNull();
  await page.context().close();
  await client.deleteConversation(id); // in the list it is called like the link that starts a new chat
});

it("a conversation has its title as soon as its first message is sent", async () => {
  const page = await stage.page();
  const question = stage.upstream.script("titled", { pieces: words(20), holdAfter: 0 });
  await say(page, question);
  await page.locator(".conversation-row", { hasText: question }).waitFor();
  await page.waitForFunction((title) => document.title.includes(title), question);
  // Nothing has been answered so far.
  expect(await page.locator(".assistant-message .md-block").count()).toBe(0);
  stage.upstream.go("titled");
  await settled(page);
  await page.locator(".conversation-row", { hasText: question }).waitFor();
  await page.context().close();
});

it("a dot in the list of another tab shows that an answer is in progress, and goes when it has ended", async () => {
  const context = await stage.context();
  const here = await stage.page("/", context);
  const there = await stage.page("/", context);
  await say(here, stage.upstream.script("dot", { pieces: words(20), holdAfter: 10 }));
  await there.locator(".dot-live").waitFor();
  stage.upstream.go("dot");
  await there.locator(".dot-live").waitFor({ state: "detached" });
  await settled(here);
  await agrees(stage, here);
  await context.close();
});

it("drafts survive a reload, each in its conversation", async () => {
  const page = await stage.page();
  const field = page.getByRole("textbox", { name: "Message" });
  await field.fill("for later");
  await page.reload();
  expect(await field.inputValue()).toBe("for later");
  await field.fill(stage.upstream.script("drafts", { pieces: words(3) }));
  await field.press("Enter");
  await settled(page);
  await field.fill("for this one");
  await page.getByRole("link", { name: "New chat", exact: true }).click();
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  expect(await field.inputValue()).toBe("");
  await page.goBack();
  await sees(page, "word3");
  expect(await field.inputValue()).toBe("for this one");
  await page.context().close();
});

it("a reader who scrolled up is not moved, and a button leads back to the end", async () => {
  const page = await stage.page();
  const pieces = words(2_000);
  await say(page, stage.upstream.script("scroll", { pieces, everyMs: 1, holdAfter: 1_500 }));
  await sees(page, "word1500");
  const scroller = page.locator(".scroller");
  const distance = (): Promise<number> =>
    scroller.evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight);
  await until("the end of the transcript", async () => (await distance()) < 2);
  await scroller.hover();
  await page.mouse.wheel(0, -600);
  await page.getByRole("button", { name: "Jump to latest" }).waitFor();
  const before = await scroller.evaluate((box) => box.scrollTop);
  stage.upstream.go("scroll");
  await sees(page, "word2000");
  await settled(page);
  expect(await scroller.evaluate((box) => box.scrollTop)).toBe(before);
  await page.getByRole("button", { name: "Jump to latest" }).click();
  await until("the end of the transcript", async () => (await distance()) < 2);
  await page.getByRole("button", { name: "Jump to latest" }).waitFor({ state: "detached" });
  await agrees(stage, page);
  await page.context().close();
});

it("a reader who scrolled up only a little is not moved either", async () => {
  const page = await stage.page();
  const pieces = words(2_000);
  await say(page, stage.upstream.script("nudge", { pieces, everyMs: 1, holdAfter: 1_500 }));
  await sees(page, "word1500");
  const scroller = page.locator(".scroller");
  const end = (): Promise<number> =>
    scroller.evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight);
  await until("the end of the transcript", async () => (await end()) < 2);
  await scroller.hover();
  await page.mouse.wheel(0, -24);
  await page.getByRole("button", { name: "Jump to latest" }).waitFor();
  const before = await scroller.evaluate((box) => box.scrollTop);
  stage.upstream.go("nudge");
  await sees(page, "word2000");
  await settled(page);
  expect(await scroller.evaluate((box) => box.scrollTop)).toBe(before);
  await page.mouse.wheel(0, 100_000);
  await page.getByRole("button", { name: "Jump to latest" }).waitFor({ state: "detached" });
  await page.context().close();
});

it("a note about the connection of one conversation is not shown in another", async () => {
  const page = await stage.page();
  stage.allow(page, CUT);
  await say(page, stage.upstream.script("cut", { pieces: words(5) }));
  await settled(page);
  stage.site.cut(true);
  await page.locator(".connection-note.is-lost").waitFor();
  // Not by its name: a conversation without a title has the same.
  await page.locator(".new-chat").click();
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  expect(await page.locator(".connection-note").textContent()).toBe("");
  stage.site.cut(false);
  await page.context().close();
});

it("the chosen model answers, even after a reload", async () => {
  const page = await stage.page();
  await page.getByLabel("Model").selectOption("demo");
  await page.reload();
  await say(page, "Say 12 words");
  await settled(page);
  const [, id] = /\/c\/(.+)$/.exec(page.url()) ?? [];
  const { data } = await new OutlastClient({ baseUrl: stage.server.url }).listGenerations({
    conversationId: id ?? "",
  });
  expect(data[0]).toMatchObject({ model: "demo", status: "completed" });
  await page.context().close();
});

it("the chosen theme stays", async () => {
  const page = await stage.page();
  const ground = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.getByRole("button", { name: /^Theme/ }).click();
  await page.getByRole("button", { name: /^Theme: light/ }).click();
  expect(await ground()).not.toBe(light);
  await page.reload();
  await page.getByRole("button", { name: /^Theme: dark/ }).waitFor();
  expect(await ground()).not.toBe(light);
  await page.context().close();
});

it("drafts and unsent messages of a deleted conversation are removed", async () => {
  const page = await stage.page();
  stage.allow(page, /\b404\b/);
  await say(page, stage.upstream.script("doomed", { pieces: words(3) }));
  await settled(page);
  await page.getByRole("textbox", { name: "Message" }).fill("never sent");
  await until("the draft is kept", () =>
    page.evaluate(() => Object.keys(localStorage).some((key) => key.startsWith("outlast:local:draft:conv_"))),
  );
  await page.locator(".conversation-row.is-current").hover();
  await page
    .locator(".conversation-row.is-current")
    .getByRole("button", { name: /^Delete/ })
    .click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  await until("nothing is kept", () =>
    page.evaluate(() => !Object.keys(localStorage).some((key) => /conv_|unsent/.test(key))),
  );
  expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain("conv_");
  await page.context().close();
});

it("copying works without the clipboard API, and says so if it fails", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("copied", { pieces: words(3) }));
  await settled(page);
  const copy = page.getByRole("button", { name: "Copy answer" });
  // As in a page without TLS.
  await page.evaluate(() => {
    Object.defineProperty(navigator, "clipboard", { value: undefined });
    const texts: string[] = [];
    document.execCommand = () => {
      const field = document.activeElement;
      return field instanceof HTMLTextAreaElement ? texts.push(field.value) > 0 : false;
    };
    Object.assign(globalThis, { copied: texts });
  });
  await copy.click();
  expect(await page.evaluate(() => (globalThis as unknown as { copied: string[] }).copied)).toEqual([
    words(3).join(""),
  ]);
  await page.evaluate(() => (document.execCommand = () => false));
  await copy.click();
  await page.getByText("Could not copy").first().waitFor();
  await page.context().close();
});

it("the app opens without a network, and caches nothing of a conversation", async () => {
  const page = await stage.page();
  await say(page, stage.upstream.script("shell", { pieces: words(9) }));
  await settled(page);
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
  await until("the shell is kept", () => page.evaluate(() => navigator.serviceWorker.controller !== null));
  stage.allow(page, CUT);
  stage.site.cut(true);
  await page.context().setOffline(true);
  await page.reload();
  await page.getByRole("link", { name: "Outlast, new chat" }).waitFor();
  const kept = await page.evaluate(async () => {
    const names = await caches.keys();
    const requests = await Promise.all(names.map(async (name) => (await caches.open(name)).keys()));
    return requests.flat().map(({ url }) => new URL(url).pathname);
  });
  expect(kept).toContain("/");
  expect(kept.filter((path) => path.startsWith("/v1"))).toEqual([]);
  stage.site.cut(false);
  await page.context().setOffline(false);
  await sees(page, "word9");
  await agrees(stage, page);
  await page.context().close();
});
