/** The states of an agent, produced with a real server and the demo model, for screenshots. */

import type { OutlastClient, View } from "@outlast/client";
import type { Page } from "playwright-core";
import type { Picture } from "./pictures";
import type { Stage } from "./stage";

/** A tool that writes for as long as pictures are taken. */
const COUNT = 'i=1; while [ $i -le 400 ]; do echo "checked page $i of 400"; i=$((i+1)); sleep 0.5; done';

const read = (path: string) => ({ name: "read_file", input: { path } });

export async function agentPictures(stage: Stage, client: OutlastClient): Promise<readonly Picture[]> {
  const demo = async (title: string, content: string): Promise<string> => {
    const { id } = await client.createConversation({ title });
    await client.startGeneration({ conversationId: id, content, model: "demo" });
    return id;
  };
  const paused = await demo("Write a small program", "/demo project");
  const danger = await demo("Clean up the workspace", "/demo danger");
  const project = await demo("Add up numbers", "/demo project");
  const running = await runningTool(stage, client);
  await decide(client, danger, { decision: "deny", reason: "I still need the diary." });
  await decide(client, project, { decision: "approve", always: true });
  const { conversation } = await until(client, project, ({ activeRun }) => activeRun === null);
  await until(client, paused, ({ activeRun }) => activeRun?.status === "paused");
  const delegated = await delegation(stage, client);
  const childId = delegated.activeRun?.delegations?.[0]?.conversationId;
  const inspected = conversation.currentGenerationId ?? "";
  return [
    shows("agent-paused", `/c/${paused}`, "button:enabled:text('Approve')"),
    { name: "agent-always", path: `/c/${paused}`, act: chooseAlways },
    shows("agent-denied", `/c/${danger}`, ".tool-card.is-denied"),
    shows("agent-running", `/c/${running}`, ".tool-card.is-running .tool-output"),
    shows("agent-done", `/c/${project}`, ".changed-files"),
    {
      name: "agent-cards",
      path: `/c/${project}`,
      act: async (page) => {
        await page.locator(".changed-files").waitFor();
        await page.locator(".scroller").evaluate((scroller) => scroller.scrollTo({ top: 0 }));
        await page.locator(".tool-card", { hasText: "sum.sh" }).locator("summary").first().click();
      },
    },
    {
      name: "agent-changes",
      path: `/c/${project}`,
      act: async (page) => {
        await page.locator(".changed-file", { hasText: "test.sh" }).click();
        await page.locator(".diff").waitFor();
      },
    },
    shows("inspect-agent", `/inspect/${inspected}`, ".span.is-lane"),
    shows("agent-delegation", `/c/${delegated.conversation.id}`, "button:enabled:text('Approve')"),
    shows("sub-agent", `/c/${childId}`, "button:enabled:text('Approve')"),
    shows("inspect-delegation", `/inspect/${delegated.activeRun?.generationId}`, ".sub-agents"),
    { name: "no-tools", path: "/", act: withoutTools },
  ];
}

/** A tool that is running, after a row of calls that went well. */
async function runningTool(stage: Stage, client: OutlastClient): Promise<string> {
  const { id } = await client.createConversation({ title: "Check the links" });
  const prepare = "mkdir -p src; for f in a b c d e; do echo page > src/$f.html; done";
  const content = stage.upstream.script("links", {
    pieces: ["I look at every page first."],
    calls: [
      [{ name: "bash", input: { command: prepare } }],
      ["a", "b", "c", "d", "e"].map((name) => read(`src/${name}.html`)),
      [{ name: "bash", input: { command: COUNT } }],
    ],
    later: ["Five pages. Let me read them.", "Now I check all the links. This takes a while."],
  });
  await client.startGeneration({ conversationId: id, content });
  await decide(client, id, { decision: "approve", always: true });
  return id;
}

/** Two sub-agents, one of which asks. */
async function delegation(stage: Stage, client: OutlastClient): Promise<View> {
  const { id } = await client.createConversation({ title: "Prepare the release" });
  const tests = stage.upstream.script("tests", {
    pieces: ["I look for what is not covered."],
    calls: [
      [
        {
          name: "update_plan",
          input: {
            plan: ["list what is not covered", "write the missing tests", "run everything"],
            openTasks: ["write the missing tests", "run everything"],
            files: ["src/parse.rs"],
            errors: ["the first run failed: no such file"],
          },
        },
      ],
      [{ name: "bash", input: { command: "cargo test --workspace" } }],
    ],
    later: ["Two functions are not covered."],
  });
  const content = stage.upstream.script("release", {
    pieces: ["I hand out the work: one sub-agent writes the tests, the other the notes."],
    calls: [
      [
        { name: "delegate", input: { task: `Write the missing tests. ${tests}` } },
        { name: "delegate", input: { task: "Write the release notes from the log." } },
      ],
    ],
  });
  await client.startGeneration({ conversationId: id, content });
  return until(client, id, ({ activeRun }) => activeRun?.status === "awaiting_approval");
}

async function decide(
  client: OutlastClient,
  id: string,
  decision: { readonly decision: "approve" | "deny"; readonly reason?: string; readonly always?: boolean },
): Promise<void> {
  const { activeRun } = await until(client, id, (view) => view.activeRun?.pendingApprovals !== undefined);
  const { toolUseId = "", hash } = activeRun?.pendingApprovals?.[0] ?? {};
  await client.submitApproval(activeRun?.generationId ?? "", toolUseId, { ...decision, hash });
}

async function until(client: OutlastClient, id: string, fits: (view: View) => boolean): Promise<View> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const view = await client.getConversation(id);
    if (fits(view)) return view;
    if (Date.now() > deadline) throw new Error(`timed out waiting for ${id}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function chooseAlways(page: Page): Promise<void> {
  await page.getByLabel("Applies to").selectOption("pattern");
  await page.getByLabel("Pattern for command").fill("sh test.sh*");
  await page.locator("button:enabled", { hasText: "Approve" }).waitFor();
}

async function withoutTools(page: Page): Promise<void> {
  const problem =
    "tools need bubblewrap: install the package `bubblewrap` (it has the command bwrap) and restart";
  const offered = { background: true, tools: [], models: ["demo"], toolsProblem: problem };
  await page.route("**/v1/capabilities", (route) => route.fulfill({ json: offered }));
  await page.reload();
  await page.locator(".offer-note").waitFor();
}

function shows(name: string, path: string, selector: string): Picture {
  return { name, path, act: async (page) => void (await page.locator(selector).first().waitFor()) };
}
