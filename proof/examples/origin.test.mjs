/** What "Use it from your app" says about origins. */

import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import { outlast } from "./stage.mjs";

test("only requests from this machine and from pages of the same origin are accepted", async (test) => {
  const { url } = await outlast(test);
  const { port } = new URL(url);
  const ask = (headers) =>
    new Promise((resolve, reject) => {
      const asked = request(`${url}/v1/models`, { headers, agent: false }, (answer) => {
        answer.resume().on("end", () => resolve(answer));
      });
      asked.on("error", reject).end();
    });
  const status = async (headers) => (await ask(headers)).statusCode;

  for (const host of ["localhost", "app.localhost:5173", `127.0.0.1:${port}`, "[::1]:80"])
    assert.equal(await status({ host }), 200, host);
  for (const host of ["app.example.com", "192.168.0.7:8787"]) assert.equal(await status({ host }), 403, host);

  const host = "localhost:5173";
  const same = await ask({ host, origin: "http://localhost:5173" });
  assert.equal(same.statusCode, 200);
  assert.equal(same.headers["access-control-allow-origin"], undefined);
  for (const origin of ["http://localhost:8787", "https://app.example.com", "null"])
    assert.equal(await status({ host, origin }), 403, origin);
});
