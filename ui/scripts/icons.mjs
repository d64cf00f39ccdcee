// Renders public/icon.svg to PNG, for systems that do not accept SVG icons.

import { readFile } from "node:fs/promises";
import { chromium } from "playwright-core";

const publicFolder = new URL("../public/", import.meta.url);
const svg = await readFile(new URL("icon.svg", publicFolder), "utf8");
// A mask may cut off the corners, so the background fills the square and the logo is smaller.
const maskable = svg
  .replace('rx="15"', "")
  .replace("<path", '<g transform="translate(32 32) scale(.78) translate(-32 -32)"><path')
  .replace("</svg>", "</g></svg>");

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
for (const [name, size, drawing] of [
  ["icon-192.png", 192, svg],
  ["icon-512.png", 512, svg],
  ["icon-maskable-512.png", 512, maskable],
]) {
  const page = await browser.newPage({ viewport: { width: size, height: size } });
  await page.setContent(`<style>body{margin:0}svg{display:block;width:${size}px}</style>${drawing}`);
  await page.screenshot({ path: new URL(name, publicFolder).pathname, omitBackground: true });
  await page.close();
}
await browser.close();
