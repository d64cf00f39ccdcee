// Convex's own client works with the test server as it does with a deployment.
import assert from "node:assert/strict";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { ConvexHttpClient } from "convex/browser";
import { anyApi } from "convex/server";
import { ConvexError } from "convex/values";
import { serve } from "./server";

const KEY = "test:key|eyJ2MiI6";
const server = serve(KEY);
let origin = "";

before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

after(() => server.close());

/** The method is not in the public types, although Convex's own tools use it. */
type Admin = ConvexHttpClient & { setAdminAuth(key: string): void };

function client(name: string, key?: string): ConvexHttpClient {
  const client = new ConvexHttpClient(`${origin}/${name}`) as Admin;
  if (key !== undefined) client.setAdminAuth(key);
  return client;
}

function item(id: string, version: string) {
  return {
    kind: "key",
    id,
    user: "ann",
    place: `8000000000000001${id}`,
    due: null,
    version,
    bytes: 2,
    body: "{}",
  };
}

test("x2_convex's own client runs the functions and gets what they return", async () => {
  const convex = client("one", KEY);
  assert.equal(await convex.query(anyApi["version"]!["version"]!, {}), "1");
  assert.equal(await convex.mutation(anyApi["items"]!["put"]!, item("a", "0")), "1");
  assert.equal(await convex.mutation(anyApi["items"]!["put"]!, item("a", "0")), null);
  const found = await convex.query(anyApi["items"]!["get"]!, { kind: "key", id: "a" });
  assert.deepEqual(found, {
    id: "a",
    user: "ann",
    place: "8000000000000001a",
    due: null,
    version: "1",
    body: "{}",
  });
  assert.equal(await client("two", KEY).query(anyApi["items"]!["get"]!, { kind: "key", id: "a" }), null);
});

test("what a function refuses reaches the client with its data, and nothing was written", async () => {
  const convex = client("refused", KEY);
  const claimed = await convex.mutation(anyApi["owners"]!["claim"]!, { conversation: "c", instance: "i" });
  const document = {
    ...{
      table: "conversations",
      id: "c",
      conversation: "c",
      user: "ann",
      seq: "0",
      place: "8000000000000001c",
    },
    ...{ due: null, status: "", request: "", tags: [], bytes: 2, body: "{}", state: null },
  };
  const line = { first: "1", last: "1", part: 0, more: false, base64: false, text: "a" };
  const append = {
    ...{ conversation: "c", instance: "i", fence: claimed.value, expected: "0", last: "1" },
    ...{ lines: [line], changes: [{ put: document }], replies: [], limits: [] },
  };
  await assert.rejects(convex.mutation(anyApi["append"]!["append"]!, append), (error) => {
    assert.ok(error instanceof ConvexError);
    assert.deepEqual(error.data, { refused: "stateless", value: "c" });
    return true;
  });
  const read = await convex.query(anyApi["log"]!["read"]!, {
    conversation: "c",
    after: "0",
    characters: 100,
  });
  assert.deepEqual(read.lines, []);
});

test("without the key nobody finds a function, and with a wrong one nobody is let in", async () => {
  await assert.rejects(
    client("one").query(anyApi["version"]!["version"]!, {}),
    /Could not find public function/,
  );
  await assert.rejects(
    client("one", "wrong").query(anyApi["version"]!["version"]!, {}),
    /deploy key was invalid/,
  );
});
