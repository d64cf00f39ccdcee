/** The conversations in the README's pictures, produced with a real server. */

import type { BrowserContextOptions, Page } from "playwright-core";
import { OutlastClient } from "@outlast/client";
import type { Stage } from "../e2e/stage";
import type { Script } from "../e2e/upstream";

export interface Scene {
  readonly name: string;
  readonly path: string;
  readonly look: BrowserContextOptions;
  readonly act: (page: Page) => Promise<void>;
}

export const SETTINGS = { OUTLAST_RECOVERY__MODE: "ask", OUTLAST_RETRY__BACKOFF: "1500ms" };

const DESK = {
  viewport: { width: 1280, height: 800 },
  deviceScaleFactor: 2,
  reducedMotion: "reduce",
} as const;
const PHONE = { ...DESK, viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true } as const;

const SKY = `Sunlight holds all colours. On its way through the air it meets molecules that are far smaller than its
waves, and these scatter **short waves much more than long ones**: by \`1/λ⁴\`.

| colour | wavelength | scattered, compared with red |
|---|---:|---:|
| red | 700 nm | 1 × |
| green | 530 nm | 3 × |
| blue | 450 nm | 5.9 × |

So blue reaches your eye from everywhere in the sky, and the rest comes mostly straight from the sun. Two things follow:

1. **Sunsets are red.** That light has crossed so much air that hardly any blue is left in it.
2. **The sky is not violet**, although violet is scattered even more: the sun sends less of it, and our eyes are less
   sensitive to it.
`;

const LISBON = `Seven days, hardly any transport, and one thing to book ahead.

- **Monday:** Alfama on foot, up to the castle before ten, down by tram 28 in the evening
- **Tuesday:** Belém: the tower, the monastery, and the custard tarts in between
- **Wednesday:** Sintra by train. Book *Pena Palace* for the first hour; it is empty then and full at
`;

const BRANCH = `Rename it where you are, then on the server:

\`\`\`sh
git branch -m old new
git push origin -u new
git push origin --delete old
\`\`\`

Everyone else runs this once:

\`\`\`sh
git fetch --prune
git branch -m old new
git branch -u origin/new new
\`\`\`

Open pull requests from \`old\` are **closed** by the delete, so merge them first.
`;

const thinking = pieces(
  "They want the reason, not only the name of the effect. Start with the light, then the air.",
);

export async function prepare(stage: Stage): Promise<readonly Scene[]> {
  const client = new OutlastClient({ baseUrl: stage.server.url });
  const ask = async (title: string, content: string, script: Script): Promise<string> => {
    const { id } = await client.createConversation({ title });
    stage.upstream.script(content, script);
    await client.startGeneration({ conversationId: id, content });
    return id;
  };
  const told = async (id: string, text: string): Promise<void> => {
    for await (const event of client.subscribeGeneration(await generationIn(client, id)))
      if (event.type === "chat.delta" && event.payload.text.includes(text)) return;
  };

  const lisbon = await ask("Plan a week in Lisbon", "Plan a week in Lisbon. We like to walk.", {
    pieces: [...pieces(LISBON), "noon."],
    holdAfter: pieces(LISBON).length,
  });
  await told(lisbon, "at");
  await stage.server.kill();
  await stage.server.restart();
  const branch = await ask("Rename a git branch", "How do I rename a branch that others use?", {
    pieces: pieces(BRANCH),
  });
  await ended(client, branch);
  const retried = await ask("Why are sunsets red?", "Why are sunsets red?", {
    thinking,
    pieces: pieces(SKY),
    everyMs: 35,
    breaks: { times: 1, after: 60 },
  });
  await ended(client, retried);
  await ask("Translate the menu", "Translate the menu into English.", {
    pieces: ["Starters ", "and soups"],
    holdAfter: 1,
  });
  const sky = await ask("Why is the sky blue?", "Why is the sky blue?", {
    thinking,
    pieces: pieces(SKY),
    holdAfter: pieces(SKY).length - 5,
  });
  await told(sky, "eyes");

  const shows = (selector: string) => async (page: Page) =>
    void (await page.locator(selector).first().waitFor());
  return [
    { name: "streaming", path: `/c/${sky}`, look: DESK, act: shows(".md") },
    { name: "interrupted", path: `/c/${lisbon}`, look: DESK, act: shows(".is-wait") },
    {
      name: "inspector",
      path: `/inspect/${await generationIn(client, retried)}`,
      look: DESK,
      act: shows(".span"),
    },
    {
      name: "approval",
      path: `/c/${await agentAt(client)}`,
      look: DESK,
      act: shows(".approval button:enabled"),
    },
    {
      name: "phone",
      path: `/c/${branch}`,
      look: { ...PHONE, colorScheme: "dark" },
      act: shows(".md-code"),
    },
  ];
}

/** An agent that has written a program and asks before it runs it. */
async function agentAt(client: OutlastClient): Promise<string> {
  const { id } = await client.createConversation({ title: "Write a small program" });
  const { generationId } = await client.startGeneration({
    conversationId: id,
    content: "/demo project",
    model: "demo",
  });
  for await (const event of client.subscribeGeneration(generationId))
    if (event.type === "approval.requested") break;
  return id;
}

function pieces(text: string): readonly string[] {
  return text.match(/\S+\s*/g) ?? [];
}

async function generationIn(client: OutlastClient, conversationId: string): Promise<string> {
  return (await client.getConversation(conversationId)).conversation.currentGenerationId ?? "";
}

async function ended(client: OutlastClient, conversationId: string): Promise<void> {
  for await (const _event of client.subscribeGeneration(await generationIn(client, conversationId)));
}
