/** Which addresses in a model's text become links. */

import { decodeEntities } from "./entities";

const HARMLESS = new Set(["http:", "https:", "mailto:"]);

/** The address if a click on it is harmless, else null. A relative address would lead into this app. */
export function safeUrl(written: string): string | null {
  const address = decodeEntities(written).trim();
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return null;
  try {
    const url = new URL(address);
    return HARMLESS.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
