/** A model that says what a test tells it to: the last message of the user names the script. */

import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Script {
  readonly thinking?: readonly string[];
  readonly pieces: readonly string[];
  /** Between two pieces. */
  readonly everyMs?: number;
  /** Waits here until the test says `go`. */
  readonly holdAfter?: number;
  /** The first so many calls are answered with this status. */
  readonly fails?: { readonly times: number; readonly status: number; readonly retryAfter?: number };
  /** The first so many calls break off after so many pieces. */
  readonly breaks?: { readonly times: number; readonly after: number; readonly retryAfter?: number };
}

export interface Upstream {
  readonly url: string;
  /** Makes a script known; the answer is the message that asks for it. */
  script(name: string, script: Script): string;
  /** Lets what is held go on, now and later. */
  go(name: string): void;
  close(): Promise<void>;
}

interface Chat {
  readonly messages: readonly { readonly role: string; readonly content: unknown }[];
}

export async function startUpstream(): Promise<Upstream> {
  const scripts = new Map<string, Script>();
  const calls = new Map<string, number>();
  const gates = new Map<string, { readonly open: () => void; readonly passed: Promise<void> }>();
  const server = createServer((asked, answer) => {
    void read(asked).then(async (chat) => {
      const said = chat.messages.map(({ content }) => textOf(content));
      const last = chat.messages.findLastIndex(({ role }) => role === "user");
      const name = /script:(\S+)/.exec(said[last] ?? "")?.[1] ?? said[last] ?? "";
      const script = scripts.get(name) ?? { pieces: ["I have ", "nothing to say."] };
      const call = (calls.get(name) ?? 0) + 1;
      calls.set(name, call);
      await play(script, call, begunBy(chat, script), answer, gates.get(name)?.passed);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    script(name, script) {
      scripts.set(name, script);
      let open = (): void => {};
      const passed = new Promise<void>((resolve) => (open = resolve));
      gates.set(name, { open, passed });
      return `script:${name}`;
    },
    go: (name) => gates.get(name)?.open(),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function play(
  script: Script,
  call: number,
  from: number,
  answer: ServerResponse,
  gate: Promise<void> | undefined,
): Promise<void> {
  const { fails, breaks, everyMs = 0 } = script;
  if (fails !== undefined && call <= fails.times) {
    const after = fails.retryAfter === undefined ? {} : { "retry-after": String(fails.retryAfter) };
    answer.writeHead(fails.status, { "content-type": "application/json", ...after });
    return void answer.end('{"error":{"message":"the model is overloaded"}}');
  }
  answer.writeHead(200, { "content-type": "text/event-stream" });
  const say = async (delta: object): Promise<void> => {
    const line = `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`;
    if (!answer.write(line)) await new Promise((resolve) => answer.once("drain", resolve));
    if (everyMs > 0) await new Promise((resolve) => setTimeout(resolve, everyMs));
  };
  if (from === 0) for (const thought of script.thinking ?? []) await say({ reasoning_content: thought });
  for (const [place, piece] of script.pieces.entries()) {
    if (answer.destroyed) return;
    if (place < from) continue;
    if (breaks !== undefined && call <= breaks.times && place === breaks.after) return void answer.destroy();
    if (place === script.holdAfter) await gate;
    await say({ content: piece });
  }
  answer.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] })}\n\n`);
  answer.end("data: [DONE]\n\n");
}

/** How many pieces the model is said to have said already, when it is asked to go on. */
function begunBy(chat: Chat, script: Script): number {
  const last = chat.messages.at(-1);
  if (last?.role !== "assistant") return 0;
  const begun = textOf(last.content);
  let text = "";
  for (const [place, piece] of script.pieces.entries()) {
    if (text === begun) return place;
    text += piece;
  }
  return text === begun ? script.pieces.length : 0;
}

function textOf(content: unknown): string {
  return typeof content === "string" ? content : JSON.stringify(content);
}

async function read(asked: IncomingMessage): Promise<Chat> {
  let text = "";
  for await (const chunk of asked as AsyncIterable<Buffer>) text += chunk.toString();
  return JSON.parse(text) as Chat;
}
