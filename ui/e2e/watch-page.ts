/** Watches a page: it must not log errors, and must send requests only to the server. */

import type { Page } from "playwright-core";

export interface Watched {
  readonly page: Page;
  /** Messages that match are expected from now on. */
  allow(what: RegExp): void;
  /** What went wrong since the last call. */
  take(): readonly string[];
}

export function watchPage(page: Page, url: string): Watched {
  const heard: string[] = [];
  const allowed: RegExp[] = [];
  page.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "warning") return;
    heard.push(`console: ${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => heard.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    heard.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    const address = request.url();
    if (!address.startsWith(url) && !/^(?:data|blob|about):/.test(address)) heard.push(`request: ${address}`);
  });
  return {
    page,
    allow: (what) => void allowed.push(what),
    take: () => heard.splice(0).filter((text) => !allowed.some((what) => what.test(text))),
  };
}
