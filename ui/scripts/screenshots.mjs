// Makes pictures of every state of the app, from the real program:
//   node scripts/screenshots.mjs FOLDER [name …]

import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { runnerImport } from "vite";

const [folder, ...only] = process.argv.slice(2);
if (folder === undefined) throw new Error("name the folder for the pictures");
await mkdir(folder, { recursive: true });

const load = async (path) =>
  (await runnerImport(new URL(path, import.meta.url).pathname, { configFile: false })).module;
const { startStage } = await load("../e2e/stage.ts");
const { prepare } = await load("../e2e/pictures.ts");

const stage = await startStage({
  OUTLAST_RECOVERY__MODE: "ask",
  OUTLAST_RETRY__BACKOFF: "60s",
  OUTLAST_MODELS__DEMO__PACE: "2ms",
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
