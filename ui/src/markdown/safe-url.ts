/** Which addresses of a model become links. */

import { decodeEntities } from "./entities";

const HARMLESS = new Set(["http:", "https:", "mailto:"]);

/**
 * The address if a click on it is harmless, else null. Only whole addresses count: a relative one would lead
 * into this app, where a model has nothing to say.
 */
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
