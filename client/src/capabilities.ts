/** Reads a server's capabilities. Old servers report none, and newer ones may report fields that are unknown here. */

import type { Capabilities } from "./api.js";

/** The defaults for fields that a server does not report. */
export const NOTHING_OFFERED: Capabilities = {
  name: "unknown",
  version: "unknown",
  user: "local",
  scopes: [],
  background: false,
  backgroundJobs: false,
  chatCompletions: false,
  externalProducers: false,
  protocols: [],
  transports: [],
  durability: "commit",
  store: "unknown",
  models: [],
  tools: [],
  toolServersUnavailable: [],
  approvals: false,
  sandbox: "none",
  notifications: false,
};

/** A field that is missing, or of another type, is not offered. Fields that this client does not know are kept. */
export function readCapabilities(said: Readonly<Record<string, unknown>>): Capabilities {
  const capabilities: Record<string, unknown> = { ...said };
  for (const [key, none] of Object.entries(NOTHING_OFFERED)) {
    const value = said[key];
    const fits = typeof value === typeof none && Array.isArray(value) === Array.isArray(none);
    if (!fits) capabilities[key] = none;
  }
  return capabilities as unknown as Capabilities;
}
