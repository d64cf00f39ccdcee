/** What the tests share: a server, a model that follows scripts, the app, and browsers. */

import { chromium } from "playwright-core";
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { startServer } from "./outlast";
import type { Server } from "./outlast";
import { startSite } from "./site";
import type { Site } from "./site";
import { startUpstream } from "./upstream";
import type { Upstream } from "./upstream";
import { watchPage } from "./watch-page";
import type { Watched } from "./watch-page";

export interface Stage {
  readonly server: Server;
  readonly upstream: Upstream;
  /** The way to the server, which can be cut. */
  readonly site: Site;
  /** Where the app is. */
  readonly url: string;
  context(options?: BrowserContextOptions): Promise<BrowserContext>;
  /** A page of its own context, unless one is given. */
  page(path?: string, context?: BrowserContext): Promise<Page>;
  /** What went wrong in the pages since the last call. */
  complaints(): readonly string[];
  end(): Promise<void>;
}

const ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export function launchBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ARGS });
}

export async function startStage(settings: Readonly<Record<string, string>> = {}): Promise<Stage> {
  const upstream = await startUpstream();
  const server = await startServer({
    OUTLAST_MODELS__DEFAULT__KIND: "openai",
    OUTLAST_MODELS__DEFAULT__BASE_URL: upstream.url,
    OUTLAST_MODELS__DEFAULT__MODEL: "scripted",
    OUTLAST_MODELS__DEMO__KIND: "demo",
    OUTLAST_MODELS__DEMO__PACE: "10ms",
    OUTLAST_RETRY__BACKOFF: "50ms",
    ...settings,
  });
  const site = await startSite(server.port);
  const { url } = site;
  const browser = await launchBrowser();
  const watched: Watched[] = [];
  const context = async (options: BrowserContextOptions = {}): Promise<BrowserContext> => {
    const made = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    made.setDefaultTimeout(20_000);
    // What was copied is read here; the real clipboard belongs to the machine.
    await made.addInitScript(() => {
      const copied: string[] = [];
      Object.assign(globalThis, { copied });
      Object.defineProperty(navigator, "clipboard", {
        value: { writeText: async (text: string) => void copied.push(text) },
      });
    });
    made.on("page", (page) => watched.push(watchPage(page, url)));
    return made;
  };
  return {
    server,
    upstream,
    site,
    url,
    context,
    async page(path = "/", within) {
      const page = await (within ?? (await context())).newPage();
      await page.goto(url + path);
      return page;
    },
    complaints: () => watched.flatMap((one) => one.take()),
    async end() {
      await browser.close();
      await site.close();
      await server.end();
      await upstream.close();
    },
  };
}
