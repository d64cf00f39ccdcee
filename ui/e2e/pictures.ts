/** Every state of the app, produced with a real server, for screenshots. */

import type { Page } from "playwright-core";
import { OutlastClient } from "@outlast/client";
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

export async function prepare(stage: Stage): Promise<readonly Picture[]> {
  const client = new OutlastClient({ baseUrl: stage.server.url });
  const start = async (title: string, script: Script): Promise<string> => {
    const { id } = await client.createConversation({ title });
    stage.upstream.script(`${title}?`, script);
    await client.startGeneration({ conversationId: id, content: `${title}?` });
    return id;
  };
  const whole = pieces(INTRODUCTION);
  const thinking = pieces(
    "The question is about optics. I should explain refraction first, then the angles.",
  );

  const interrupted = await start("Plan a week in Lisbon", { pieces: whole, holdAfter: 60 });
  await untilText(client, interrupted, "Light is");
  await stage.server.kill();
  await stage.server.restart();
  const complete = await start("How do rainbows form", { thinking, pieces: whole, everyMs: 9 });
  const streaming = await start("Why is the sky blue", { pieces: whole, holdAfter: 75 });
  const thinks = await start("Prove that there is no largest prime", {
    thinking,
    pieces: whole,
    holdAfter: 0,
  });
  const failed = await start("Translate this poem", {
    pieces: whole,
    fails: { times: 9, status: 400 },
  });
  const retrying = await start("Summarise the minutes", {
    pieces: whole,
    fails: { times: 9, status: 503, retryAfter: 240 },
  });
  const stopped = await start("Draft a letter to the landlord", { pieces: whole, holdAfter: 50 });
  await untilText(client, stopped, "colour leaves".slice(0, 6));
  const running = await client.getConversation(stopped);
  await client.cancelGeneration(running.activeRun?.generationId ?? "");
  const queued = await start("Explain recursion to a child", { pieces: whole, holdAfter: 40 });
  await client.startGeneration({
    conversationId: queued,
    content: "And then to a grown-up.",
    whenBusy: "queue",
  });
  const worker = await startWorker(stage, "Tidy up my downloads, please.");
  const listed = { toolUseId: "call_0", toolName: "bash", toolInput: { command: "ls ~/Downloads | wc -l" } };
  await worker.say(
    { type: "chat.delta", payload: { text: "I will look at what is there first." } },
    { type: "tool.start", payload: listed },
    { type: "tool.end", payload: { toolUseId: "call_0", result: "214", isError: false } },
    { type: "chat.delta", payload: { text: "There are 214 files. I would remove those older than a year." } },
    asks("call_1", "find ~/Downloads -mtime +365 -print"),
    asks("call_2", "find ~/Downloads -mtime +365 -delete"),
  );
  await untilText(client, streaming, "Light is");
  await untilEnd(client, complete);
  const done = await client.getConversation(complete);
  const lost = await client.getConversation(failed);

  const chat = (name: string, id: string, selector: string): Picture => ({
    name,
    path: `/c/${id}`,
    act: async (page) => void (await page.locator(selector).first().waitFor()),
  });
  return [
    {
      name: "empty",
      path: "/",
      act: async (page) => void (await page.locator(".example").first().waitFor()),
    },
    chat("complete", complete, ".md-code"),
    chat("streaming", streaming, ".md"),
    chat("thinking", thinks, ".thinking"),
    chat("retrying", retrying, ".is-retry"),
    chat("interrupted", interrupted, ".is-wait"),
    chat("error", failed, ".is-failed"),
    {
      name: "approval",
      path: `/c/${worker.conversationId}`,
      act: async (page) =>
        void (await page.locator("button:enabled", { hasText: "Approve" }).first().waitFor()),
    },
    chat("cancelled", stopped, ".turn-note"),
    chat("queued", queued, ".user-note"),
    {
      name: "scrolled-up",
      path: `/c/${complete}`,
      act: async (page) => {
        await page.locator(".md-code").waitFor();
        await page.locator(".scroller").evaluate((scroller) => scroller.scrollTo({ top: 0 }));
        await page.getByRole("button", { name: "Jump to latest" }).waitFor();
      },
    },
    {
      name: "busy-typed",
      path: `/c/${streaming}`,
      act: async (page) => {
        await page.getByRole("textbox", { name: "Message" }).fill("One more thing: what about sunsets?");
        await page.getByRole("button", { name: "Interrupt" }).waitFor();
      },
    },
    {
      name: "offline",
      path: `/c/${streaming}`,
      act: async (page) => {
        await page.locator(".md").first().waitFor();
        stage.site.cut(true);
        await page.locator(".connection-note.is-lost").waitFor();
      },
    },
    {
      name: "not-sent",
      path: `/c/${stopped}`,
      act: async (page, isPhone) => {
        await page.locator(".md").first().waitFor();
        // An unreachable server is retried for ten seconds; a refusal fails at once.
        await page.route("**/v1/generations", (route) =>
          route.fulfill({
            status: 429,
            contentType: "application/problem+json",
            body: '{"status":429,"code":"limit_reached","detail":"20 generations are under way, which is the limit"}',
          }),
        );
        await page.getByRole("textbox", { name: "Message" }).fill("And double rainbows?");
        if (isPhone) await page.getByRole("button", { name: "Send" }).click();
        else await page.keyboard.press("Enter");
        await page.locator(".failed").waitFor();
      },
    },
    {
      name: "list",
      path: `/c/${complete}`,
      act: async (page, isPhone) => {
        if (isPhone) await page.getByRole("button", { name: "Show conversations" }).click();
        await page.locator(".conversation-row").first().hover();
        await page.waitForTimeout(250);
      },
    },
    {
      name: "delete",
      path: `/c/${complete}`,
      act: async (page, isPhone) => {
        if (isPhone) await page.getByRole("button", { name: "Show conversations" }).click();
        await page.locator(".conversation-row.is-current").hover();
        await page.getByRole("button", { name: "Delete How do rainbows form" }).click();
        await page.locator("dialog[open]").waitFor();
      },
    },
    {
      name: "missing",
      path: "/c/conv_nowhere",
      act: async (page) => void (await page.getByRole("alert").waitFor()),
    },
    {
      name: "inspect",
      path: `/inspect/${done.conversation.currentGenerationId}`,
      act: async (page) => {
        await page.locator(".event").nth(5).click();
        await page.locator(".event-json").waitFor();
      },
    },
    {
      name: "inspect-failed",
      path: `/inspect/${lost.conversation.currentGenerationId}`,
      act: async (page) => void (await page.locator(".event").first().waitFor()),
    },
    {
      name: "inspect-interrupted",
      path: `/inspect/${(await client.getConversation(interrupted)).conversation.currentGenerationId}`,
      act: async (page) => void (await page.locator(".span").first().waitFor()),
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
