/** Every state of the app, produced with a real server, for screenshots. */

import type { Page } from "playwright-core";
import { OutlastClient } from "@outlast/client";
import type { OutlastEvent } from "@outlast/client";
import { agentPictures } from "./agent-pictures";
import type { Stage } from "./stage";
import type { Script } from "./upstream";
import { asks, startWorker } from "./worker";

export interface Picture {
  readonly name: string;
  readonly path: string;
  /** What a person does before the picture is taken. */
  readonly act: (page: Page, isPhone: boolean) => Promise<void>;
}

const INTRODUCTION = `## How rainbows form

Sunlight enters a drop of water, **bends**, is reflected at its back and bends again on the way out. Each colour
leaves at a slightly different angle, so that every drop sends you *one* colour only.

1. Light is refracted as it enters the drop.
2. It is reflected once inside.
3. It is refracted again as it leaves, at about \`42°\` for red.

| colour | angle | wavelength |
|---|---:|---:|
| red | 42.4° | 700 nm |
| green | 41.5° | 530 nm |
| violet | 40.5° | 400 nm |

> Two people never see the same rainbow: each has drops of their own.

\`\`\`python
from math import asin, degrees, sin

def deflection(angle: float, index: float = 1.333) -> float:
    """How far a ray is turned by one drop."""
    inside = asin(sin(angle) / index)
    return degrees(2 * angle - 4 * inside) + 180
\`\`\`

More about it is at [the encyclopaedia](https://example.org/rainbow). ![A rainbow](https://example.org/rainbow.png)
`;

function pieces(text: string): readonly string[] {
  return text.match(/\S+\s*|\s+/g) ?? [];
}

/** The conversations in the pictures. */
interface Cast {
  readonly complete: string;
  readonly streaming: string;
  readonly thinking: string;
  readonly failed: string;
  readonly retrying: string;
  readonly stopped: string;
  readonly queued: string;
  readonly interrupted: string;
  readonly approval: string;
  readonly silent: string;
}

export async function prepare(stage: Stage): Promise<readonly Picture[]> {
  const client = new OutlastClient({ baseUrl: stage.server.url });
  const cast = await converse(stage, client);
  const generationOf = async (id: string): Promise<string> =>
    (await client.getConversation(id)).conversation.currentGenerationId ?? "";
  return [
    ...statePictures(cast),
    ...actionPictures(stage, cast),
    ...listPictures(cast),
    ...(await agentPictures(stage, client)),
    {
      name: "inspect",
      path: `/inspect/${await generationOf(cast.complete)}`,
      act: async (page) => {
        await page.locator(".event").nth(5).click();
        await page.locator(".event-json").waitFor();
      },
    },
    shows("operate", "/operate", ".operate-list"),
    shows("approve-link", `/approve/${await notificationOf(stage, cast.approval)}`, ".approve-page pre"),
    shows("inspect-failed", `/inspect/${await generationOf(cast.failed)}`, ".event"),
    shows("inspect-interrupted", `/inspect/${await generationOf(cast.interrupted)}`, ".span"),
  ];
}

/** The notification about a question that nobody watched. */
async function notificationOf(stage: Stage, conversation: string): Promise<string> {
  const inbox = await fetch(`${stage.server.url}/v1/notifications`);
  const { data } = (await inbox.json()) as { data: { id: string; conversationId: string; kind: string }[] };
  const found = data.find((one) => one.conversationId === conversation && one.kind === "approval");
  return found?.id ?? "none";
}

async function converse(stage: Stage, client: OutlastClient): Promise<Cast> {
  const start = async (title: string, script: Script): Promise<string> => {
    const { id } = await client.createConversation({ title });
    stage.upstream.script(`${title}?`, script);
    await client.startGeneration({ conversationId: id, content: `${title}?` });
    return id;
  };
  const whole = pieces(INTRODUCTION);
  const thoughts = pieces(
    "The question is about optics. I should explain refraction first, then the angles.",
  );
  const interrupted = await start("Plan a week in Lisbon", { pieces: whole, holdAfter: 60 });
  await untilText(client, interrupted, "Light is");
  await stage.server.kill();
  await stage.server.restart();
  const complete = await start("How do rainbows form", { thinking: thoughts, pieces: whole, everyMs: 9 });
  const streaming = await start("Why is the sky blue", { pieces: whole, holdAfter: 75 });
  const thinking = await start("Prove that there is no largest prime", {
    thinking: thoughts,
    pieces: whole,
    holdAfter: 0,
  });
  const failed = await start("Translate this poem", { pieces: whole, fails: { times: 9, status: 400 } });
  const retrying = await start("Summarise the minutes", {
    pieces: whole,
    fails: { times: 9, status: 503, retryAfter: 240 },
  });
  const stopped = await start("Draft a letter to the landlord", { pieces: whole, holdAfter: 50 });
  await untilText(client, stopped, "colour");
  const running = await client.getConversation(stopped);
  await client.cancelGeneration(running.activeRun?.generationId ?? "");
  const queued = await start("Explain recursion to a child", { pieces: whole, holdAfter: 40 });
  await client.startGeneration({
    conversationId: queued,
    content: "And then to a grown-up.",
    whenBusy: "queue",
  });
  const approval = await askPerson(stage);
  const silent = await fallSilent(stage);
  await untilText(client, streaming, "Light is");
  await untilEnd(client, complete);
  return {
    complete,
    streaming,
    thinking,
    failed,
    retrying,
    stopped,
    queued,
    interrupted,
    approval,
    silent,
  };
}

/** A worker that asks for two tool calls, one of them with invisible characters. */
async function askPerson(stage: Stage): Promise<string> {
  const worker = await startWorker(stage, "Tidy up my downloads, please.");
  const listed = { toolUseId: "call_0", toolName: "bash", toolInput: { command: "ls ~/Downloads | wc -l" } };
  await worker.say(
    { type: "chat.delta", payload: { text: "I will look at what is there first." } },
    { type: "tool.start", payload: listed },
    { type: "tool.end", payload: { toolUseId: "call_0", result: "214", isError: false } },
    { type: "chat.delta", payload: { text: "There are 214 files. I would remove those older than a year." } },
    asks("call_1", "find ~/Downloads -mtime +365 -print"),
    asks("call_2", "find ~/Downloads -name '*\u202egpj.exe\u200b' -delete"),
  );
  return worker.conversationId;
}

/** A worker that stops responding. */
async function fallSilent(stage: Stage): Promise<string> {
  const worker = await startWorker(stage, "Check the backups.");
  await worker.say({ type: "chat.delta", payload: { text: "The backup of Monday is complete. " } });
  return worker.conversationId;
}

function shows(name: string, path: string, selector: string): Picture {
  return { name, path, act: async (page) => void (await page.locator(selector).first().waitFor()) };
}

function statePictures(cast: Cast): readonly Picture[] {
  return [
    shows("empty", "/", ".example"),
    shows("complete", `/c/${cast.complete}`, ".md-code"),
    shows("streaming", `/c/${cast.streaming}`, ".md"),
    shows("thinking", `/c/${cast.thinking}`, ".thinking"),
    shows("retrying", `/c/${cast.retrying}`, ".is-retry"),
    shows("interrupted", `/c/${cast.interrupted}`, ".is-wait .button"),
    shows("worker-silent", `/c/${cast.silent}`, ".is-wait .turn-text"),
    shows("error", `/c/${cast.failed}`, ".is-failed"),
    shows("approval", `/c/${cast.approval}`, "button:enabled:text('Approve')"),
    shows("cancelled", `/c/${cast.stopped}`, ".turn-note"),
    shows("queued", `/c/${cast.queued}`, ".user-note"),
    {
      name: "missing",
      path: "/c/conv_nowhere",
      act: async (page) => void (await page.getByRole("alert").waitFor()),
    },
  ];
}

/** States caused by a person or by the network. */
function actionPictures(stage: Stage, cast: Cast): readonly Picture[] {
  return [
    {
      name: "scrolled-up",
      path: `/c/${cast.complete}`,
      act: async (page) => {
        await page.locator(".md-code").waitFor();
        await page.locator(".scroller").evaluate((scroller) => scroller.scrollTo({ top: 0 }));
        await page.getByRole("button", { name: "Jump to latest" }).waitFor();
      },
    },
    {
      name: "busy-typed",
      path: `/c/${cast.streaming}`,
      act: async (page) => {
        await page.getByRole("textbox", { name: "Message" }).fill("One more thing: what about sunsets?");
        await page.getByRole("button", { name: "Interrupt" }).waitFor();
      },
    },
    {
      name: "offline",
      path: `/c/${cast.streaming}`,
      act: async (page) => {
        await page.locator(".md").first().waitFor();
        stage.site.cut(true);
        await page.locator(".connection-note.is-lost").waitFor();
      },
    },
    { name: "approval-changed", path: `/c/${cast.approval}`, act: changeQuestion },
    { name: "foreground", path: "/", act: withoutBackground },
    { name: "not-sent", path: `/c/${cast.stopped}`, act: failToSend },
  ];
}

/** The worker asks something else under the same id while a person decides. */
async function changeQuestion(page: Page): Promise<void> {
  let askAgain = (): void => {};
  await page.routeWebSocket(/\/ws$/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      const event = JSON.parse(String(message)) as OutlastEvent;
      const run = event.type === "snapshot" ? event.payload.activeRun : null;
      for (const question of run?.pendingApprovals ?? []) Object.assign(question, { hash: "first" });
      if (run != null)
        askAgain = () => {
          const log = { ts: event.ts, generationId: run.generationId, requestId: run.requestId };
          const { toolUseId, toolName } = run.pendingApprovals?.[0] ?? {};
          const command = "find ~ -mtime +365 -delete";
          const asked = { toolUseId, toolName, toolInput: { command }, hash: "second" };
          const withdrawn = { attempt: 1, messageIds: [], reason: "worker restarted" };
          const events = [
            { ...log, seq: event.seq + 1, type: "attempt.retracted", payload: withdrawn },
            { ...log, seq: event.seq + 2, type: "approval.requested", payload: asked },
          ];
          for (const one of events) socket.send(JSON.stringify(one));
        };
      socket.send(JSON.stringify(event));
    });
  });
  const body = '{"status":409,"code":"approval_changed","detail":"the question has changed"}';
  await page.route(/\/approvals\//, async (route) => {
    askAgain();
    await route.fulfill({ status: 409, contentType: "application/problem+json", body });
  });
  await page.reload();
  await page.locator("button:enabled", { hasText: "Approve" }).first().click();
  await page.locator(".trouble").waitFor();
  await page.locator("button:enabled", { hasText: "Approve" }).first().waitFor();
}

async function withoutBackground(page: Page): Promise<void> {
  await page.route("**/v1/capabilities", (route) => route.fulfill({ status: 404, body: "" }));
  await page.reload();
  await page.locator(".composer-note").waitFor();
}

async function failToSend(page: Page, isPhone: boolean): Promise<void> {
  await page.locator(".md").first().waitFor();
  // An unreachable server is retried for ten seconds; a refusal fails at once.
  await page.route("**/v1/generations", (route) =>
    route.fulfill({
      status: 429,
      contentType: "application/problem+json",
      body: '{"status":429,"code":"limit_reached","detail":"20 generations are running, which is the limit"}',
    }),
  );
  await page.getByRole("textbox", { name: "Message" }).fill("And double rainbows?");
  if (isPhone) await page.getByRole("button", { name: "Send" }).click();
  else await page.keyboard.press("Enter");
  await page.locator(".failed").waitFor();
}

function listPictures({ complete }: Cast): readonly Picture[] {
  const openList = async (page: Page, isPhone: boolean): Promise<void> => {
    if (isPhone) await page.getByRole("button", { name: "Show conversations" }).click();
    await page.locator(".conversation-row.is-current").hover();
  };
  return [
    {
      name: "list",
      path: `/c/${complete}`,
      act: async (page, isPhone) => {
        await openList(page, isPhone);
        await page.waitForTimeout(250);
      },
    },
    {
      name: "rename",
      path: `/c/${complete}`,
      act: async (page, isPhone) => {
        await openList(page, isPhone);
        await page.getByRole("button", { name: "Rename How do rainbows form" }).click();
        await page.getByRole("textbox", { name: "New name" }).fill("");
      },
    },
    {
      name: "delete",
      path: `/c/${complete}`,
      act: async (page, isPhone) => {
        await openList(page, isPhone);
        await page.getByRole("button", { name: "Delete How do rainbows form" }).click();
        await page.locator("dialog[open]").waitFor();
      },
    },
  ];
}

async function untilEnd(client: OutlastClient, id: string): Promise<void> {
  const { activeRun } = await client.getConversation(id);
  if (activeRun !== null) for await (const _event of client.subscribeGeneration(activeRun.generationId));
}

async function untilText(client: OutlastClient, id: string, text: string): Promise<void> {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const view = await client.getConversation(id);
    if (Object.values(view.overlays).some((said) => said.includes(text))) return;
    if (Date.now() > deadline) throw new Error(`timed out waiting for the text ${text}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
