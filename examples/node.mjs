// Asks a question and prints the answer as it arrives. Kill the server and restart it: the answer continues.
//   node node.mjs ask "Why is the sky blue?"
//   node node.mjs follow GENERATION [POSITION]
//   node node.mjs cancel|resume|dismiss|retry|continue GENERATION

import { OutlastClient } from "@outlast/client";

const client = new OutlastClient({ baseUrl: process.env.OUTLAST_URL ?? "http://127.0.0.1:8787" });
const [command, id = "", after = "0"] = process.argv.slice(2);
const note = (text) => process.stderr.write(`\n[${text}]\n`);

async function follow(generationId, after = 0) {
  let position = after;
  // Only this program stops. The generation continues, and a client that reconnects misses nothing.
  process.once("SIGINT", () => {
    note(`continue with: node node.mjs follow ${generationId} ${position}`);
    process.exit(130);
  });
  for await (const event of client.subscribeGeneration(generationId, { after })) {
    position = event.seq;
    if (event.type === "chat.delta") process.stdout.write(event.payload.text);
    // A failed attempt is withdrawn: discard its text. The answer starts over.
    if (event.type === "attempt.retracted") process.stdout.write("\n[withdrawn]\n");
    if (event.type === "chat.interrupted") note(`${event.payload.reason}: resume or dismiss it`);
    if (event.type === "chat.error") note(event.payload.errorMessage);
  }
  const { status } = await client.getGenerationStatus(generationId);
  note(status);
}

switch (command) {
  case "ask": {
    const { generationId } = await client.startGeneration({ content: id });
    await follow(generationId);
    break;
  }
  case "follow":
    await follow(id, Number(after));
    break;
  case "cancel":
    console.log(await client.cancelGeneration(id));
    break;
  case "resume":
    console.log(await client.resumeGeneration(id));
    break;
  case "dismiss":
    console.log(await client.dismissGeneration(id));
    break;
  case "retry":
  case "continue": {
    const { generationId } = await client.retryGeneration(id, { mode: command });
    await follow(generationId);
    break;
  }
  default:
    note("usage: node node.mjs ask|follow|cancel|resume|dismiss|retry|continue …");
    process.exitCode = 2;
}
