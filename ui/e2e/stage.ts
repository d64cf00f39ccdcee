/** What the tests share: a server, a scripted model, the app, and browsers. */

import { chromium } from "playwright-core";
import type { BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { startServer } from "../../client/test/server/outlast";
import type { Server } from "../../client/test/server/outlast";
import { startSite } from "./site";
import type { Site } from "./site";
import { startUpstream } from "./upstream";
import type { Upstream } from "./upstream";
import { watchPage } from "./watch-page";
import type { Watched } from "./watch-page";

export interface Stage {
  readonly server: Server;
  readonly upstream: Upstream;
  /** The proxy to the server, which can be cut. */
  readonly site: Site;
  /** The address of the app. */
  readonly url: string;
  context(options?: BrowserContextOptions): Promise<BrowserContext>;
  /** A separate browser with a persistent profile in this folder. */
  browser(profile: string): Promise<BrowserContext>;
  /** A page in a new context, unless one is given. */
  page(path?: string, context?: BrowserContext): Promise<Page>;
  /** Expects messages that match: browsers log errors about a network that was cut, for example. */
  allow(page: Page, what: RegExp): void;
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

const LAUNCH = { executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ARGS };

/** What browsers log about a network that was cut. A test that cuts it allows this. */
export const CUT = /net::ERR_|WebSocket connection to .* failed|error occurred when fetching the script/;

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
  const browser = await chromium.launch(LAUNCH);
  const watched: Watched[] = [];
  const prepare = async (made: BrowserContext): Promise<BrowserContext> => {
    made.setDefaultTimeout(45_000);
    // Records what is copied instead of using the machine's clipboard.
    await made.addInitScript(() => {
      const copied: string[] = [];
      Object.assign(globalThis, { copied });
      Object.defineProperty(navigator, "clipboard", {
        configurable: true,
        value: { writeText: async (text: string) => void copied.push(text) },
      });
    });
    made.on("page", (page) => watched.push(watchPage(page, url)));
    return made;
  };
  const viewport = { width: 1280, height: 800 };
  const context = async (options: BrowserContextOptions = {}): Promise<BrowserContext> =>
    prepare(await browser.newContext({ viewport, ...options }));
  return {
    server,
    upstream,
    site,
    url,
    context,
    browser: async (profile) =>
      prepare(await chromium.launchPersistentContext(profile, { ...LAUNCH, viewport })),
    async page(path = "/", within) {
      const page = await (within ?? (await context())).newPage();
      await page.goto(url + path);
      return page;
    },
    allow: (page, what) => watched.find((one) => one.page === page)?.allow(what),
    complaints: () => watched.flatMap((one) => one.take()),
    async end() {
      await browser.close();
      await site.close();
      await server.end();
      await upstream.close();
    },
  };
}
