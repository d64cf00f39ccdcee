// The candidate people use today: `ai` + `resumable-stream` + Redis, put together as the page "Chatbot
// Resume Streams" of the AI SDK shows it, on plain node:http instead of Next.js (which would only add
// to its costs). Three choices are in its favour: one stream context for the whole process, as the
// README of resumable-stream has it, where the page opens two Redis connections per request; chats are
// kept in Redis, so that they survive a crash; and a listen backlog that takes 1,000 connects at once.

import { createServer } from 'node:http';
import { Readable, pipeline } from 'node:stream';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import {
  UI_MESSAGE_STREAM_HEADERS,
  convertToModelMessages,
  generateId,
  pipeUIMessageStreamToResponse,
  streamText,
  toUIMessageStream,
} from 'ai';
import { createClient } from 'redis';
import { createResumableStreamContext } from 'resumable-stream';

// REDIS_URL is also what resumable-stream reads for its own two connections.
const { REDIS_URL, UPSTREAM_URL } = process.env;
const LISTEN_BACKLOG = 4096;

const store = createClient({ url: REDIS_URL });
await store.connect();

const provider = createOpenAICompatible({ name: 'bench', baseURL: `${UPSTREAM_URL}/v1`, apiKey: 'none' });
// A long-running process needs no waitUntil to keep working after an answer, only no unhandled promise.
const streamContext = createResumableStreamContext({ waitUntil: (promise) => void promise });

const readChat = async (id) => JSON.parse((await store.get(`chat:${id}`)) ?? '{"messages":[]}');
const saveChat = async (id, changes) => {
  const chat = { ...(await readChat(id)), ...changes };
  await store.set(`chat:${id}`, JSON.stringify(chat));
};

async function post(request, response) {
  const { id, message } = JSON.parse(await text(request));
  const messages = [...(await readChat(id)).messages, message];
  await saveChat(id, { messages, activeStreamId: null });

  const result = streamText({
    model: provider('bench'),
    messages: await convertToModelMessages(messages),
  });

  pipeUIMessageStreamToResponse({
    response,
    stream: toUIMessageStream({
      stream: result.stream,
      originalMessages: messages,
      generateMessageId: generateId,
      onEnd: ({ messages }) => saveChat(id, { messages, activeStreamId: null }),
    }),
    async consumeSseStream({ stream }) {
      const streamId = generateId();
      await streamContext.createNewResumableStream(streamId, () => stream);
      await saveChat(id, { activeStreamId: streamId });
    },
  });
}

async function resume(id, response) {
  const { activeStreamId } = await readChat(id);
  if (activeStreamId == null) {
    response.writeHead(204).end();
    return;
  }
  const stream = await streamContext.resumeExistingStream(activeStreamId);
  if (stream == null) {
    response.writeHead(204).end();
    return;
  }
  response.writeHead(200, UI_MESSAGE_STREAM_HEADERS);
  // A reader that leaves cancels its subscription; that is no error of the server's.
  pipeline(Readable.fromWeb(stream), response, () => {});
}

async function text(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}

const server = createServer((request, response) => {
  const resumed = /^\/api\/chat\/([^/]+)\/stream$/.exec(request.url);
  let answered;
  if (request.method === 'POST' && request.url === '/api/chat') answered = post(request, response);
  else if (request.method === 'GET' && resumed) answered = resume(resumed[1], response);
  else answered = Promise.resolve(response.writeHead(404).end());
  answered.catch((error) => {
    if (!response.headersSent) response.writeHead(500);
    response.end(String(error?.message ?? error));
  });
});

server.listen(0, '127.0.0.1', LISTEN_BACKLOG, () => {
  console.log(`node listening on http://127.0.0.1:${server.address().port}`);
});
