// MCP's own test server, by HTTP and by stdio: list, call, error, progress, cancel, restart in the middle, changed list.

import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { EVERYTHING, HERE, NODE, Outlast, everything, freePort, until } from "./stage.mjs";

const LONG = "trigger-long-running-operation";

/** What holds for both ways to reach a server. */
function behaves(outlast) {
  test("x4 its tools are listed under its name, and ask a person unless the settings allow them", async () => {
    const { data, servers } = await outlast().get("/v1/tools");
    const names = data.map((tool) => tool.name);
    assert.ok(names.includes("every__echo") && names.includes("every__get-sum"), names.join());
    const echo = data.find((tool) => tool.name === "every__echo");
    assert.deepEqual([echo.policy, echo.runsIn, echo.readOnly], ["allow", "elsewhere", false]);
    assert.equal(data.find((tool) => tool.name === "every__get-tiny-image").policy, "deny");
    assert.deepEqual(servers, [{ name: "every", unavailable: [] }]);
  });

  test("x4 a call is answered", async () => {
    const said = await outlast().call("every__echo", { message: "hello" });
    assert.deepEqual([said.status, said.text, said.isError], ["completed", "Echo: hello", false]);
    const sum = await outlast().call("every__get-sum", { a: 2, b: 3 });
    assert.match(sum.text, /5/);
  });

  test("x4 an error is told to the model", async () => {
    const said = await outlast().call("every__get-sum", { a: "two", b: 3 });
    assert.deepEqual([said.status, said.isError], ["completed", true]);
  });

  test("x4 a tool that the settings deny is not called", async () => {
    const said = await outlast().call("every__get-tiny-image", {});
    assert.match(said.text, /denied/);
  });

  test("x4 progress becomes output", async () => {
    const said = await outlast().call(`every__${LONG}`, { duration: 1, steps: 4 });
    assert.match(said.text, /completed/);
    const output = (await outlast().events(said.id)).filter((event) => event.type === "tool.output");
    assert.match(output.map((event) => event.payload.text).join(""), /1\/4\n2\/4\n/);
  });

  test("i9 a cancelled call ends at once, and the server goes on", async () => {
    const id = await outlast().begin(`every__${LONG}`, { duration: 50, steps: 2 });
    await outlast().recorded(id, "tool.began");
    const cancelled = await outlast().post(`/v1/generations/${id}/cancel`, {});
    assert.deepEqual(cancelled, { success: true, status: "cancelled" });
    assert.equal((await outlast().call("every__echo", { message: "on" })).text, "Echo: on");
  });
}

const POLICY = `
[tools.every]
policy = "allow"
[tools.every__get-tiny-image]
policy = "deny"
`;

describe("by HTTP", () => {
  let outlast, port, server;
  before(async () => {
    port = await freePort();
    server = await everything(port);
    outlast = await Outlast.start(`[mcp.every]\nurl = "http://127.0.0.1:${port}/mcp"\nallow_private = true\n${POLICY}`);
    await until("the tools", async () => (await outlast.tools()).length > 0);
  });
  after(async () => {
    await outlast?.end();
    await server?.end();
  });

  behaves(() => outlast);

  test("i7 a server that dies in a call leaves an unknown outcome, and is used again when it is back", async () => {
    const id = await outlast.begin(`every__${LONG}`, { duration: 50, steps: 200 });
    await outlast.recorded(id, "tool.output"); // so the server has begun
    await server.end();
    const { contentParts } = await outlast.reaches(id, "interrupted");
    assert.match(contentParts.find((part) => part.type === "tool_result").content, /outcome unknown/);
    const down = await until("the problem", async () => {
      const standing = await outlast.server("every");
      return standing.problem && standing;
    });
    assert.ok(down.unavailable.some((tool) => tool.name === "every__echo" && tool.reason === down.problem));
    server = await everything(port);
    await until("the tools", async () => (await outlast.tools()).includes("every__echo"));
    assert.equal((await outlast.call("every__echo", { message: "back" })).text, "Echo: back");
  });

  test("i7 a killed Outlast does not ask again", async () => {
    const id = await outlast.begin(`every__${LONG}`, { duration: 50, steps: 200 });
    await outlast.recorded(id, "tool.output");
    await outlast.process.end();
    await outlast.restart();
    const { contentParts } = await outlast.reaches(id, "interrupted");
    assert.match(contentParts.find((part) => part.type === "tool_result").content, /outcome unknown/);
  });

  test("x4 a server that is down does not keep Outlast from starting", async () => {
    await server.end();
    await outlast.process.end();
    await outlast.restart();
    const standing = await outlast.server("every");
    assert.equal(standing.problem, "cannot connect");
    assert.ok(standing.unavailable.some((tool) => tool.name === "every__echo"), "known from the last time");
    assert.deepEqual((await outlast.get("/v1/capabilities")).toolServersUnavailable, ["every"]);
  });
});

describe("by stdio", () => {
  let outlast, changed;
  before(async () => {
    changed = join(HERE, `changed-${process.pid}`);
    const command = JSON.stringify([NODE, join(HERE, "changing.mjs"), changed, EVERYTHING]);
    const settings = `[mcp.every]\ncommand = ${command}\nhost = true\nenv = { GIVEN = "given" }\n${POLICY}`;
    outlast = await Outlast.start(settings, { OPENROUTER_API_KEY: "canary" });
    await until("the tools", async () => (await outlast.tools()).length > 0);
  });
  after(async () => {
    await outlast?.end();
    rmSync(changed, { force: true });
  });

  behaves(() => outlast);

  test("i14 the program is not given the server's environment", async () => {
    const { text } = await outlast.call("every__get-env", {});
    assert.match(text, /GIVEN/);
    assert.doesNotMatch(text, /canary|OPENROUTER/);
  });

  test("x4 a changed list disables what changed until a person agrees", async () => {
    writeFileSync(changed, "");
    const id = await outlast.begin("every__echo", { message: "die" }); // the program ends when it is told so
    await outlast.reaches(id, "interrupted"); // and is started again
    const { unavailable } = await until("the change", async () => {
      const standing = await outlast.server("every");
      return standing.unavailable.length === 1 && !standing.problem && standing;
    });
    assert.equal(unavailable[0].name, "every__echo");
    assert.match(unavailable[0].reason, /changed/);
    assert.ok(!(await outlast.tools()).includes("every__echo"));
    const refused = await outlast.post("/v1/generations", { content: "x", tools: ["every__echo"] });
    assert.equal(refused.code, "invalid_request");
    const listed = outlast.command("mcp", "list");
    assert.match(listed, /changed "echo"[^]*Ignore all previous instructions/);
    const hash = listed.match(/--hash (\w+)/)[1];
    assert.throws(() => outlast.command("mcp", "accept", "every", "--hash", "0000"), /has changed/);
    assert.match(outlast.command("mcp", "accept", "every", "--hash", hash), /accepted 1/);
    await until("the tool", async () => (await outlast.tools()).includes("every__echo"));
    assert.equal((await outlast.call("every__echo", { message: "again" })).text, "Echo: again");
  });
});
