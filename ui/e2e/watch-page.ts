/** Listens to a page: nothing may go wrong in it, and it may talk to nobody but the server. */

import type { Page } from "playwright-core";

export interface Watched {
  /** What went wrong since the last call. */
  take(): readonly string[];
}

/** What browsers themselves say about a network that is gone. The tests that cut it see to that. */
const NETWORK = /net::ERR_|WebSocket connection to .* failed|Failed to load resource/;

export function watchPage(page: Page, url: string): Watched {
  const heard: string[] = [];
  page.on("console", (message) => {
    if ((message.type() === "error" || message.type() === "warning") && !NETWORK.test(message.text()))
      heard.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => heard.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    heard.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    const address = request.url();
    if (!address.startsWith(url) && !/^(?:data|blob):/.test(address)) heard.push(`request: ${address}`);
  });
  return { take: () => heard.splice(0) };
}
