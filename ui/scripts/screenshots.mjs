// Takes screenshots of the real app: of every state, or those of the README.
//   node scripts/screenshots.mjs FOLDER [name …]
//   node scripts/screenshots.mjs --readme FOLDER

import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { runnerImport } from "vite";

const isReadme = process.argv[2] === "--readme";
const [folder, ...only] = process.argv.slice(isReadme ? 3 : 2);
if (folder === undefined) throw new Error("usage: screenshots.mjs [--readme] FOLDER [name …]");
await mkdir(folder, { recursive: true });

const load = async (path) =>
  (await runnerImport(new URL(path, import.meta.url).pathname, { configFile: false })).module;
const { startStage } = await load("../e2e/stage.ts");
await (isReadme ? readme() : everyState());

async function readme() {
  const { prepare, SETTINGS } = await load("./readme-scenes.ts");
  const stage = await startStage(SETTINGS);
  try {
    for (const { name, path, look, act } of await prepare(stage)) {
      const context = await stage.context(look);
      const page = await context.newPage();
      await page.goto(stage.url + path);
      await act(page);
      await page.screenshot({ path: join(folder, `${name}.png`) });
      await context.close();
    }
  } finally {
    await stage.end();
  }
}

async function everyState() {
  const { prepare } = await load("../e2e/pictures.ts");
  const stage = await startStage({
    OUTLAST_RECOVERY__MODE: "ask",
    OUTLAST_RETRY__BACKOFF: "60s",
    OUTLAST_MODELS__DEMO__PACE: "2ms",
    OUTLAST_TIMEOUTS__WORKER_SILENCE: "1s",
    OUTLAST_TIMEOUTS__APPROVAL_PAUSE: "1s",
    OUTLAST_AGENT__MAX_DEPTH: "1",
  });
  try {
    const pictures = await prepare(stage);
    for (const width of [1280, 390]) {
      for (const colorScheme of ["light", "dark"]) {
        const context = await stage.context({
          colorScheme,
          viewport: { width, height: width === 390 ? 844 : 800 },
          deviceScaleFactor: width === 390 ? 2 : 1,
          hasTouch: width === 390,
          isMobile: width === 390,
          reducedMotion: "reduce",
        });
        for (const { name, path, act } of pictures) {
          if (only.length > 0 && !only.includes(name)) continue;
          const page = await context.newPage();
          await page.goto(stage.url + path);
          await act(page, width === 390);
          await page.screenshot({ path: join(folder, `${name}-${width}-${colorScheme}.png`) });
          await page.close();
          stage.site.cut(false);
        }
        await context.close();
      }
    }
  } finally {
    await stage.end();
  }
}
