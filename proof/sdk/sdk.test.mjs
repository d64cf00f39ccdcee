// OpenAI's library for Node against a real server.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const { OUTLAST_URL, CUT_URL, TOOLSMITH_URL } = process.env;
const to = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const client = to(OUTLAST_URL);
const user = (content) => [{ role: "user", content }];
let seed = 1000;
const script = (text) => user(`seed=${seed++} ${text}`);

const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      description: "Tells the weather.",
      parameters: { type: "object", properties: { city: { type: "string" } } },
    },
  },
];

async function read(stream) {
  let text = "";
  const rest = [];
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    if (chunk.choices[0]?.finish_reason) rest.push(chunk.choices[0].finish_reason);
    if (chunk.usage) rest.push(chunk.usage);
  }
  return { text, rest };
}

/** Every token of a script of this length, once and in order. */
function isWhole(text, tokens) {
  const indices = [...text.matchAll(/<(\d+):\d+> /g)].map((found) => Number(found[1]));
  assert.deepEqual(indices, [...Array(tokens).keys()]);
  assert.equal(text.replaceAll(/<\d+:\d+> /g, ""), "");
}

test("b3 a stream has the whole answer, the finish reason and token counts", async () => {
  const stream = await client.chat.completions.create({
    model: "default",
    messages: script("tokens=50 rate=500"),
    stream: true,
    stream_options: { include_usage: true },
  });
  const { text, rest } = await read(stream);
  isWhole(text, 50);
  assert.deepEqual(rest, ["stop", { prompt_tokens: 9, completion_tokens: 50, total_tokens: 59 }]);
});

test("b3 the stream helper of the library works too", async () => {
  const runner = client.chat.completions.stream({ model: "demo", messages: user("Say 20 words") });
  const completion = await runner.finalChatCompletion();
  assert.equal(completion.choices[0].message.content.trim().split(/\s+/).length, 20);
  assert.match(completion.id, /^chatcmpl-gen_/);
});

test("b3 without a stream the answer is one object", async () => {
  const completion = await client.chat.completions.create({
    model: "default",
    messages: script("tokens=30"),
    temperature: 0.5,
  });
  isWhole(completion.choices[0].message.content, 30);
  assert.equal(completion.choices[0].finish_reason, "stop");
  assert.equal(completion.usage.total_tokens, 39);
  assert.equal(completion.object, "chat.completion");
});

test("b3 tools and options are passed on in both directions", async () => {
  const asked = user("How is the weather in Paris?");
  const question = { model: "tools", messages: asked, tools, temperature: 0.25, tool_choice: "auto" };
  const first = await client.chat.completions.create(question);
  const [call] = first.choices[0].message.tool_calls;
  assert.equal(first.choices[0].finish_reason, "tool_calls");
  assert.deepEqual([call.id, call.function.name], ["call_1", "weather"]);
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
  const sent = await (await fetch(TOOLSMITH_URL)).json();
  assert.deepEqual(sent.tools[0].function, tools[0].function);
  assert.deepEqual([sent.temperature, sent.tool_choice, sent.model], [0.25, "auto", "toolsmith"]);

  const answered = { role: "tool", tool_call_id: call.id, content: "sunny" };
  const messages = [...asked, first.choices[0].message, answered];
  const second = await client.chat.completions.create({ ...question, messages, stream: true });
  assert.equal((await read(second)).text, "It is sunny.");
  const returned = await (await fetch(TOOLSMITH_URL)).json();
  assert.deepEqual(returned.messages.at(-1), answered);
  assert.equal(returned.messages.at(-2).tool_calls[0].function.name, "weather");
});

test("b3 the stream helper assembles a tool call", async () => {
  const runner = client.chat.completions.stream({ model: "tools", messages: user("Paris?"), tools });
  const { message, finish_reason } = (await runner.finalChatCompletion()).choices[0];
  assert.equal(finish_reason, "tool_calls");
  assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Paris" });
});

test("b3 errors are raised as the library's own", async () => {
  await assert.rejects(client.chat.completions.create({ model: "default" }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError, String(error));
    assert.deepEqual([error.status, error.code, error.param], [400, "invalid_request", "messages"]);
    assert.match(error.message, /messages: is missing/);
    return true;
  });
  await assert.rejects(client.chat.completions.create({ model: "none", messages: user("hi") }), (error) => {
    assert.ok(error instanceof OpenAI.UnprocessableEntityError, String(error));
    assert.match(error.message, /default/);
    return true;
  });
  const broken = { model: "default", messages: script("tokens=5 fail=400") };
  await assert.rejects(client.chat.completions.create(broken), (error) => {
    assert.deepEqual([error.status, error.code], [400, "upstream_invalid_request"]);
    return true;
  });
});

test("b3 a failure in the middle of a stream is raised", async () => {
  const messages = script("tokens=50 rate=200 error_after=10 fails=1");
  const stream = await client.chat.completions.create({ model: "default", messages, stream: true });
  await assert.rejects(read(stream), (error) => {
    assert.ok(error instanceof OpenAI.APIError, String(error));
    assert.equal(error.code, "attempt_retracted");
    assert.match(error.message, /\/v1\/jobs\/gen_[0-9a-f]+\/events/);
    return true;
  });
});

test("b3 i2 a stream that is cut in the middle is complete in the job's events", async () => {
  const messages = script("tokens=80 rate=200");
  const asked = { model: "default", messages, stream: true, messageId: `cut-${Date.now()}` };
  const { data, response } = await to(CUT_URL).chat.completions.create(asked).withResponse();
  let before = "";
  await assert.rejects(async () => {
    for await (const chunk of data) before += chunk.choices[0].delta.content;
  });
  assert.ok(before.length > 0, "some of it arrived");

  const events = await fetch(OUTLAST_URL + response.headers.get("outlast-job-events"));
  const lines = (await events.text()).split("\n").filter((line) => line.startsWith("data: "));
  const log = lines.map((line) => JSON.parse(line.slice(6)));
  assert.equal(log.at(-1).type, "chat.done");
  const text = log.filter((event) => event.type === "chat.delta").map((event) => event.payload.text).join("");
  isWhole(text, 80);
  assert.ok(text.startsWith(before));
  const again = await read(await client.chat.completions.create(asked));
  assert.equal(again.text, text, "a repeated request gets it too");
});

test("b3 a background job through the library", async () => {
  const threadId = `thread-${Date.now()}`;
  const asked = { model: "demo", messages: user("Say 30 words"), background: true, threadId, messageId: "m" };
  const { jobId, status } = await client.chat.completions.create(asked);
  assert.equal(status, "streaming");
  await (await fetch(`${OUTLAST_URL}/v1/jobs/${jobId}/events`)).text();
  const job = await client.get(`/jobs/${jobId}`);
  assert.deepEqual([job.status, job.threadId, job.messageId], ["complete", threadId, "m"]);
  assert.equal(job.content.trim().split(/\s+/).length, 30);
});
