/** A new Vite app with the package as npm would publish it, and the proxy from its README. */

import { execFileSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createServer } from "vite";
import type { ViteDevServer } from "vite";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { until, words } from "./person";
import { startStage } from "./stage";
import type { Stage } from "./stage";

const ui = resolve(import.meta.dirname, "..");
const client = resolve(ui, "../client");
const readme = readFileSync(join(client, "README.md"), "utf8");

const page = (script: string): string =>
  `<!doctype html><title>Fresh</title><link rel="icon" href="data:," /><div id="root"></div><script type="module" src="/${script}"></script>`;

const FILES = {
  "package.json": '{"name":"fresh","private":true,"type":"module"}',
  "tsconfig.json": '{"compilerOptions":{"jsx":"react-jsx"}}',
  // The example that people copy from the README.
  "index.html": page("main.tsx"),
  "main.tsx": /```tsx\n([\s\S]*?)```/.exec(readme)?.[1] ?? "",
  "generation.html": page("generation.tsx"),
  "generation.tsx": `
import { OutlastClient } from "@outlast/client";
import { OutlastProvider, useGeneration } from "@outlast/client/react";
import { createRoot } from "react-dom/client";

const client = new OutlastClient();

function Generation({ id }: { id: string | null }) {
  const { generation, isGenerating, startGeneration, cancelGeneration } = useGeneration(id);
  const text = generation?.contentParts.map((part) => (part.type === "text" ? part.text : "")).join("");
  return (
    <main>
      <button onClick={() => startGeneration("script:fresh")}>Start</button>
      {isGenerating && <button onClick={() => cancelGeneration()}>Stop</button>}
      <output>{text}</output>
      <p>{generation?.status}</p>
    </main>
  );
}

createRoot(document.getElementById("root")!).render(
  <OutlastProvider client={client}>
    <Generation id={client.lastPosition()?.conversationId ?? null} />
  </OutlastProvider>,
);
`,
};

let stage: Stage;
let vite: ViteDevServer;
const app = mkdtempSync(join(tmpdir(), "outlast-fresh-"));

beforeAll(async () => {
  stage = await startStage();
  for (const [name, text] of Object.entries(FILES)) writeFileSync(join(app, name), text);
  // It was built before, like the app itself.
  npm(client, "pack", "--ignore-scripts", "--silent", "--pack-destination", app);
  const tarball = readdirSync(app).find((name) => name.endsWith(".tgz")) ?? "";
  npm(
    app,
    "install",
    "--offline",
    "--no-audit",
    "--no-fund",
    "--silent",
    "--legacy-peer-deps",
    `./${tarball}`,
  );
  // Everything else comes from this folder's node_modules, so that no network is needed.
  mkdirSync(join(app, "node_modules"), { recursive: true });
  for (const name of ["react", "react-dom", "scheduler"])
    symlinkSync(join(ui, "node_modules", name), join(app, "node_modules", name));
  vite = await createServer({
    root: app,
    configFile: false,
    logLevel: "silent",
    // As in the README: the Host header is passed on unchanged.
    server: { host: "127.0.0.1", port: 0, proxy: { "/v1": { target: stage.server.url, ws: true } } },
  });
  await vite.listen();
}, 120_000);

afterAll(async () => {
  await vite.close();
  await stage.end();
  rmSync(app, { recursive: true, force: true });
});
afterEach(() => expect(stage.complaints()).toEqual([]));

function npm(folder: string, ...args: readonly string[]): void {
  execFileSync("npm", args, { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
}

const address = (path: string): string => new URL(path, vite.resolvedUrls?.local[0]).href;
const whole = words(60).join("");

it("streams with useGeneration, and continues after a reload", async () => {
  const page = await (await stage.context()).newPage();
  stage.allow(page, /^request: /);
  await page.goto(address("/generation.html"));
  stage.upstream.script("fresh", { pieces: words(60), holdAfter: 30 });
  await page.getByRole("button", { name: "Start" }).click();
  const text = (): Promise<string | null> => page.locator("output").textContent();
  await until("half of it", async () => (await text())?.includes("word30"));
  expect(await page.locator("p").textContent()).toBe("running");
  expect(await text()).not.toContain("word31");
  await page.reload();
  await until("half of it again", async () => (await text())?.includes("word30"));
  stage.upstream.go("fresh");
  await until("the end", async () => (await page.locator("p").textContent()) === "completed");
  expect(await text()).toBe(whole);
  await page.context().close();
});

it("runs the example of the README, which recovers from a deleted conversation", async () => {
  const page = await (await stage.context()).newPage();
  stage.allow(page, /^request: |\b404\b/);
  await page.goto(address("/"));
  await page.locator("input").fill(stage.upstream.script("example", { pieces: words(60), holdAfter: 30 }));
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("word30").waitFor();
  await page.reload();
  await page.getByText("word30").waitFor();
  stage.upstream.go("example");
  await page.getByText("word60").waitFor();
  const position = await page.evaluate(() => JSON.stringify(localStorage));
  const [id] = /conv_\w+/.exec(position) ?? [];
  await fetch(`${stage.server.url}/v1/conversations/${id}`, { method: "DELETE" });
  await page.reload();
  await page.getByText("Start a new one").click();
  await page.locator("input").fill(stage.upstream.script("new", { pieces: words(3) }));
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("word3").waitFor();
  await page.context().close();
});
