// Inngest's library for Node against a real server: an event starts a generation, and its id is the idempotency key.
import assert from "node:assert/strict";
import test from "node:test";
import { Inngest } from "inngest";

const { OUTLAST_URL } = process.env;
const inngest = new Inngest({ id: "proof", baseUrl: OUTLAST_URL, eventKey: "no-keys-here" });
const event = (id, content) => ({ name: "chat/message.sent", id, data: { content, model: "demo" } });

async function get(path) {
  const response = await fetch(`${OUTLAST_URL}${path}`);
  assert.equal(response.status, 200, path);
  return response.json();
}

test("x1 an event starts a generation, and the same id starts no second one", async () => {
  const first = await inngest.send(event("message-17", "Say 5 words"));
  const again = await inngest.send(event("message-17", "Say 5 words"));
  assert.deepEqual(again.ids, first.ids);
  const [id] = first.ids;
  const { conversationId } = await get(`/v1/generations/${id}`);
  const { data } = await get(`/v1/generations?conversationId=${conversationId}`);
  assert.deepEqual(data.map((generation) => generation.id), [id]);
  const ended = await fetch(`${OUTLAST_URL}/v1/generations/${id}/events`); // the stream ends with the generation
  assert.match(await ended.text(), /event: chat\.done/);
});

test("x1 several events in one call start one generation each", async () => {
  const { ids } = await inngest.send([event("a", "Say 2 words"), event("b", "Say 2 words")]);
  assert.equal(new Set(ids).size, 2);
});

test("x1 a different message under the same id is refused", async () => {
  await inngest.send(event("message-18", "Say 2 words"));
  await assert.rejects(inngest.send(event("message-18", "Say 3 words")));
});

test("x1 an unknown event is refused", async () => {
  await assert.rejects(inngest.send({ name: "user/created", data: {} }));
});
