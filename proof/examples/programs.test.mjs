/** The examples for Node and Python: each survives a crash of the server, and being stopped itself. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { APP, outlast, program, QUESTION, ROOT } from "./stage.mjs";

const EXAMPLES = [
  ["node.mjs", "node", join(APP, "node.mjs")],
  ["follow.py", "python3", join(ROOT, "examples/follow.py")],
];
const WITHDRAWN = "\n[withdrawn]\n";
/** Enough text that something could be lost. */
const WORDS = /(\S+\s+){20}/;

for (const [name, command, path] of EXAMPLES)
  describe(`examples/${name}`, { concurrency: true, timeout: 60_000 }, () => {
    const start = async (test, settings) => {
      const server = await outlast(test, settings);
      const run = (...args) => program(test, command, [path, ...args], { env: { OUTLAST_URL: server.url } });
      return { server, run };
    };

    test("g2 continues after the server was killed, and prints what is stored", async (test) => {
      const { server, run } = await start(test);
      const asked = run("ask", QUESTION);
      await asked.says(WORDS);
      await server.crash();
      assert.equal(await asked.end(), 0, asked.err);
      const [before, after, ...more] = asked.out.split(WITHDRAWN);
      assert.deepEqual(more, []);
      assert.equal(after, await server.answer());
      assert.ok(after.startsWith(before), "the demo model repeats the same text");
    });

    test("g3 stopped in the middle, it prints where to continue, and misses nothing", async (test) => {
      const { server, run } = await start(test, { paceMs: 15 });
      const first = run("ask", QUESTION);
      await first.says(WORDS);
      first.signal("SIGINT");
      assert.equal(await first.end(), 130);
      const [, ...again] = /continue with: .*(follow) (\S+) (\d+)/.exec(first.err);
      const second = run(...again);
      assert.equal(await second.end(), 0, second.err);
      assert.equal(first.out + second.out, await server.answer());
    });

    test("g5 g7 cancels, retries and continues", async (test) => {
      const { server, run } = await start(test, { paceMs: 15 });
      const stop = async (asked) => {
        await asked.says(WORDS);
        const { id } = await server.latest();
        assert.equal(await run("cancel", id).end(), 0);
        assert.equal(await asked.end(), 0, asked.err);
        return { id, partial: await server.answer("cancelled") };
      };
      const asked = run("ask", QUESTION);
      const first = await stop(asked);
      assert.equal(asked.out, first.partial);
      const retried = run("retry", first.id);
      const second = await stop(retried);
      assert.deepEqual(retried.out.split(WITHDRAWN), ["", second.partial]);
      const continued = run("continue", second.id);
      assert.equal(await continued.end(), 0, continued.err);
      assert.equal(continued.out, await server.answer());
      const { data } = await server.get(`/v1/conversations/${(await server.latest()).conversationId}/messages`);
      const said = data.filter(({ role }) => role === "assistant").map(({ content }) => content);
      assert.deepEqual(said, [second.partial, continued.out], "the first is withdrawn, the second is kept");
    });

    test("p3 resumes and dismisses an interrupted generation", async (test) => {
      const { server, run } = await start(test, { recovery: "ask" });
      const asked = run("ask", QUESTION);
      await asked.says(WORDS);
      await server.crash(40);
      await asked.says(/resume or dismiss it/);
      const { id } = await server.latest();
      assert.equal(await run("resume", id).end(), 0);
      await asked.says(/\[withdrawn\]\n(\S+\s+){5}/);
      await server.crash();
      await asked.says(/dismiss it[^]*dismiss it/);
      assert.equal(await run("dismiss", id).end(), 0);
      assert.equal(await asked.end(), 0, asked.err);
      assert.equal(asked.out.split(WITHDRAWN).at(-1), await server.answer("cancelled"));
    });
  });
