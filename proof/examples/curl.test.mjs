/** Pastes the commands of the README and of "Use it from your app" into a shell exactly as printed. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { blocks, frames, outlast, terminal, until } from "./stage.mjs";

const CANCELLED = { success: true, status: "cancelled" };

/** Only the address may differ from what is printed. */
async function reader(test, page, heading, settings) {
  const server = await outlast(test, settings);
  const lines = blocks(page)
    .filter((block) => block.language === "sh" && block.text.includes("curl"))
    .filter((block) => heading === undefined || block.heading === heading)
    .map(({ text }) => text.replaceAll("localhost:8787", server.url.slice("http://".length)));
  const all = async (path) => frames(await (await fetch(server.url + path)).text());
  return { server, lines, shell: terminal(test), all };
}

/** Pastes the lines, and presses Ctrl-C when `count` events have been printed. */
async function breakOff({ shell }, lines, count) {
  const from = shell.printed().length;
  const pasted = shell.paste(lines);
  await until(`${count} events`, () => frames(shell.printed().slice(from)).length >= count);
  shell.interrupt();
  return frames(await pasted);
}

describe("printed lines", { concurrency: true, timeout: 60_000 }, () => {
  test("the commands of the README work as printed", async (test) => {
    const here = await reader(test, "README.md", undefined, { paceMs: 30 });
    const { shell, server, all } = here;
    const [start, follow, stop, job] = here.lines;
    assert.equal(here.lines.length, 4);

    const started = JSON.parse(await shell.paste(start));
    assert.equal(started.status, "running");
    assert.deepEqual(JSON.parse(await shell.paste(start)), started, "a repeated request starts nothing");

    const [id, whole, rest] = follow.trimEnd().split("\n");
    assert.equal(await shell.paste(id), "");
    const seen = await breakOff(here, whole, 50);
    const after = await breakOff(here, rest, 20);
    const [cancel, state] = stop.trimEnd().split("\n");
    assert.deepEqual(JSON.parse(await shell.paste(cancel)), CANCELLED);
    assert.equal(JSON.parse(await shell.paste(state)).status, "cancelled");
    const log = await all(`/v1/generations/${started.generationId}/events`);
    assert.deepEqual(seen, log.slice(0, seen.length));
    const place = log.findIndex((frame) => frame.startsWith("id: 43\n"));
    assert.deepEqual(after, log.slice(place, place + after.length));
    assert.equal((await server.latest()).id, started.generationId);

    const [begin, look, events, abort] = job.trimEnd().split("\n");
    assert.equal(await shell.paste(begin), "");
    const looked = JSON.parse(await shell.paste(look));
    assert.deepEqual([looked.threadId, looked.messageId, looked.status], ["tea", "tea-1", "streaming"]);
    await breakOff(here, events, 10);
    assert.deepEqual(JSON.parse(await shell.paste(abort)), { aborted: true });
    assert.equal((await server.get(`/v1/jobs/${looked.id}`)).status, "aborted");
  });

  test("g3 curl reconnects after Ctrl-C and after a crash, and gets every event once", async (test) => {
    const here = await reader(test, "docs/use-it-from-your-app.md", "curl", { recovery: "ask" });
    const { shell, server, all, lines } = here;
    assert.equal(lines.length, 6);
    const [start, follow, comeBack, stop, decide, again] = lines;
    const [resume, dismiss] = decide.trimEnd().split("\n");
    const named = (name) => start.replace('"one"', `"${name}"`);
    assert.equal(await shell.paste(start), "");

    const first = await breakOff(here, follow, 20);
    const cut = shell.paste(comeBack);
    await until("some more", () => frames(shell.printed()).length >= first.length + 20);
    await server.crash(15); // curl ends with the connection, and the same lines are pasted again
    const second = frames(await cut);
    const rest = shell.paste(comeBack);
    await until("the interruption is printed", () => shell.printed().includes("event: chat.interrupted"));
    const { id } = await server.latest();
    const other = terminal(test);
    assert.equal(await other.paste(start), "", "a repeated request starts nothing");
    assert.match(await other.paste(resume), /"success":true/);
    const third = frames(await rest);
    assert.deepEqual([...first, ...second, ...third], await all(`/v1/generations/${id}/events`));
    const text = textOf([...first, ...second, ...third]);
    assert.equal(text, await server.answer());

    await shell.paste(named("two"));
    await server.speaks();
    await server.crash(30);
    assert.deepEqual(JSON.parse(await shell.paste(dismiss)), CANCELLED);
    const kept = await server.answer("cancelled");
    const [, continued] = /"generationId":"(\w+)"/.exec(await shell.paste(again));
    assert.equal((await server.latest()).id, continued);
    const view = await server.get(`/v1/conversations/${(await server.latest()).conversationId}`);
    assert.equal(view.messages.find(({ role }) => role === "assistant").content, kept);

    await shell.paste(named("three"));
    const [look, cancel] = stop.trimEnd().split("\n");
    assert.equal(JSON.parse(await shell.paste(look)).status, "running");
    assert.deepEqual(JSON.parse(await shell.paste(cancel)), CANCELLED);
  });
});

/** The text of the events, without what was withdrawn. */
function textOf(log) {
  const said = new Map();
  for (const frame of log) {
    const { type, payload } = JSON.parse(/^data: (.*)$/m.exec(frame)[1]);
    if (type === "chat.delta") said.set(payload.messageId, (said.get(payload.messageId) ?? "") + payload.text);
    if (type === "attempt.retracted") for (const id of payload.messageIds) said.delete(id);
  }
  return [...said.values()].join("");
}
