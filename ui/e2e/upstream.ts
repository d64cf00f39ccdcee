/** A scripted model: the last user message names the script. */

import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Script {
  readonly thinking?: readonly string[];
  readonly pieces: readonly string[];
  /** Tools that it asks for after the text, one list for each round. The round after the last has none. */
  readonly calls?: readonly (readonly Call[])[];
  /** What it says in the rounds after the first. */
  readonly later?: readonly string[];
  /** Between two pieces. */
  readonly everyMs?: number;
  /** Waits here until the test says `go`. */
  readonly holdAfter?: number;
  /** The first `times` calls fail with this status. */
  readonly fails?: { readonly times: number; readonly status: number; readonly retryAfter?: number };
  /** The first `times` calls fail after `after` pieces. */
  readonly breaks?: { readonly times: number; readonly after: number; readonly retryAfter?: number };
}

export interface Call {
  readonly name: string;
  readonly input: object;
}

export interface Upstream {
  readonly url: string;
  /** Registers a script, and returns the message that plays it. */
  script(name: string, script: Script): string;
  /** Lets a held answer continue, now and in later calls. */
  go(name: string): void;
  close(): Promise<void>;
}

interface ChatMessage {
  readonly role: string;
  readonly content: unknown;
  readonly tool_calls?: readonly unknown[];
}

interface Chat {
  readonly messages: readonly ChatMessage[];
}

export async function startUpstream(): Promise<Upstream> {
  const scripts = new Map<string, Script>();
  const calls = new Map<string, number>();
  const gates = new Map<string, { readonly open: () => void; readonly passed: Promise<void> }>();
  const server = createServer((asked, answer) => {
    void read(asked).then(async (chat) => {
      // A request to continue is a message of its own; the one before it names the script.
      const asked = chat.messages.findLastIndex(
        (message) => message.role === "user" && scripts.has(nameIn(message)),
      );
      const name = nameIn(chat.messages[asked]);
      const script = scripts.get(name) ?? { pieces: ["I have ", "nothing to say."] };
      const call = (calls.get(name) ?? 0) + 1;
      calls.set(name, call);
      const since = chat.messages.slice(asked + 1);
      const round = since.filter(({ tool_calls }) => tool_calls !== undefined).length;
      if (script.calls !== undefined) return void (await playRound(script, round, answer));
      await play(script, call, begunBy(since, script), answer, gates.get(name)?.passed);
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

/** A round of an agent: what it says, and the tools that it asks for. */
async function playRound(script: Script, round: number, answer: ServerResponse): Promise<void> {
  const calls = script.calls?.[round] ?? [];
  answer.writeHead(200, { "content-type": "text/event-stream" });
  const say = (delta: object, finish_reason: string | null = null): void =>
    void answer.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
  const pieces = round === 0 ? script.pieces : [script.later?.[round - 1] ?? ""];
  for (const content of pieces) if (content !== "") say({ content });
  for (const [index, { name, input }] of calls.entries())
    say({
      tool_calls: [
        {
          index,
          id: `call_${round}_${index}`,
          type: "function",
          function: { name, arguments: JSON.stringify(input) },
        },
      ],
    });
  say({}, calls.length > 0 ? "tool_calls" : "stop");
  answer.end("data: [DONE]\n\n");
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
    if (breaks !== undefined && call <= breaks.times && place === breaks.after) return void answer.end();
    if (place === script.holdAfter) await gate;
    await say({ content: piece });
  }
  answer.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] })}\n\n`);
  answer.end("data: [DONE]\n\n");
}

function nameIn(message: ChatMessage | undefined): string {
  const text = textOf(message?.content ?? "");
  return /script:(\S+)/.exec(text)?.[1] ?? text;
}

/** How many pieces the prompt already contains, when the model is asked to continue. */
function begunBy(since: readonly ChatMessage[], script: Script): number {
  const begun = since.find(({ role }) => role === "assistant");
  if (begun === undefined) return 0;
  const text = textOf(begun.content).trimEnd();
  for (let count = 1; count <= script.pieces.length; count += 1)
    if (script.pieces.slice(0, count).join("").trimEnd() === text) return count;
  return 0;
}

function textOf(content: unknown): string {
  return typeof content === "string" ? content : JSON.stringify(content);
}

async function read(asked: IncomingMessage): Promise<Chat> {
  let text = "";
  for await (const chunk of asked as AsyncIterable<Buffer>) text += chunk.toString();
  return JSON.parse(text) as Chat;
}
