/** The examples for web pages, in Chromium: reloaded, interrupted by a crash, stopped, resumed. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { APP, folder, launchBrowser, open, outlast, program, QUESTION, ROOT } from "./stage.mjs";


/** Text in the middle of the answer, which is always the same for the same question. */
const MIDDLE = "Open this conversation in a second tab";

async function app(test, recovery) {
  const server = await outlast(test, { recovery });
  // A separate folder: Vite caches prepared files there, and two instances would write them at once.
  const cwd = folder(test);
  cpSync(APP, cwd, { recursive: true, verbatimSymlinks: true });
  const args = ["node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", "0", "--strictPort"];
  const vite = program(test, "node", args, { cwd, env: { OUTLAST_URL: server.url } });
  const [address] = await vite.says(/http:\/\/127\.0\.0\.1:\d+/);
  return { server, address };
}

async function say({ page, button }, text) {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await button("Send").click();
}

const browser = launchBrowser();
after(async () => (await browser).close());

describe("pages", { concurrency: true, timeout: 90_000 }, () => {
  test("the React example is well typed", () => {
    execFileSync("node", [join(APP, "node_modules/typescript/bin/tsc"), "-p", APP], { stdio: "inherit" });
  });

  test("a stream through examples/react/vite.config.js ends with its server", async (test) => {
    const { server, address } = await app(test, "safe");
    const body = JSON.stringify({ content: QUESTION });
    const { generationId } = await (await fetch(`${address}/v1/generations`, { method: "POST", body })).json();
    const curl = program(test, "curl", ["-sN", `${address}/v1/generations/${generationId}/events`]);
    await curl.says(/chat\.delta/);
    await server.crash();
    assert.notEqual(await curl.end(), 0, "the stream ended with the server");
  });

  test("p3 p6 examples/react/chat.tsx streams, and survives a reload and a crash", async (test) => {
    const { server, address } = await app(test, "ask");
    const here = await open(test, await browser, address);
    await say(here, QUESTION);
    await here.sees(".assistant", MIDDLE);
    await here.page.reload();
    await here.sees(".assistant", MIDDLE);
    await server.crash(15);
    await here.button("Resume").click();
    await here.sees(".assistant", MIDDLE);
    const whole = await server.answer();
    await here.button("Stop").waitFor({ state: "detached" });
    assert.equal(await here.text(".assistant"), whole);
    assert.equal(await here.page.locator(".assistant").count(), 1, "there is one answer");

    await say(here, `${QUESTION}, please`);
    await here.page.locator(".assistant").nth(1).waitFor();
    await here.button("Stop").click();
    await here.button("Continue").waitFor();
    assert.equal(await here.text(".assistant"), await server.answer("cancelled"));
    await here.button("Retry").click();
    await server.speaks();
    await server.crash(15);
    await here.button("Dismiss").click();
    await here.button("Retry").waitFor();
    assert.equal(await here.text(".assistant"), await server.answer("cancelled"));
    assert.deepEqual(here.errors, []);
  });

  test("g2 examples/react/answer.tsx: useGeneration streams, and survives a reload and a crash", async (test) => {
    const { server, address } = await app(test, "safe");
    const here = await open(test, await browser, `${address}/answer.html`);
    await here.button("Ask").click();
    await here.sees("main > p", MIDDLE);
    await here.page.reload();
    await here.sees("main > p", MIDDLE);
    await server.crash(15);
    await here.page.getByRole("status").getByText("completed").waitFor();
    assert.equal(await here.page.locator("main > p").first().textContent(), await server.answer());
    await here.button("Ask").click();
    await here.button("Stop").click();
    await here.page.getByRole("status").getByText("cancelled").waitFor();
    assert.deepEqual(here.errors, []);
  });

  test("p6 examples/browser.html survives a reload and a crash without a build step", async (test) => {
    const server = await outlast(test, { recovery: "ask" });
    const site = folder(test);
    cpSync(join(APP, "node_modules/@outlast/client/dist"), join(site, "outlast"), { recursive: true });
    cpSync(join(ROOT, "examples/browser.html"), join(site, "browser.html"));
    const args = [join(ROOT, "examples/serve.mjs"), site, "0"];
    const serve = program(test, "node", args, { env: { OUTLAST_URL: server.url } });
    const here = await open(test, await browser, `${(await serve.says(/http:\S+/))[0]}/browser.html`);
    await say(here, QUESTION);
    await here.sees("#transcript", MIDDLE);
    await here.page.reload();
    await here.sees("#transcript", MIDDLE);
    await server.crash(15);
    await here.button("Resume").click();
    const whole = await server.answer();
    await here.button("Stop").waitFor({ state: "hidden" });
    assert.equal(await here.text("#transcript"), `user: ${QUESTION}\n\nassistant: ${whole}`);

    await here.button("New chat").click();
    await say(here, `${QUESTION}, please`);
    await here.sees("#transcript", MIDDLE);
    await here.button("Stop").click();
    await here.button("Retry").click();
    await server.speaks();
    await server.crash(15);
    await here.button("Dismiss").click();
    await here.button("Continue").waitFor();
    const partial = await server.answer("cancelled");
    assert.equal(await here.text("#transcript"), `user: ${QUESTION}, please\n\nassistant: ${partial}`);
    assert.deepEqual(here.errors, []);
  });
});
