/** What the server offers, as a hook. */

import { useSyncExternalStore } from "react";
import type { Capabilities } from "../api.js";
import { capabilitiesStore } from "../capabilities-store.js";
import { useOutlast } from "./provider.js";

/** Null until the server has said what it offers. */
export function useCapabilities(): Capabilities | null {
  const store = capabilitiesStore(useOutlast());
  return useSyncExternalStore(store.subscribe, store.snapshot, store.initialSnapshot);
}
