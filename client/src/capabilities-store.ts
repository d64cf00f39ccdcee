/** What a server offers, as a store. It is read when there is a listener, and again after a failure. */

import type { Capabilities } from "./api.js";
import { sharedBy } from "./client.js";
import type { OutlastClient } from "./client.js";
import { Store } from "./store.js";

const stores = new WeakMap<OutlastClient, CapabilitiesStore>();

/** The same store for the same client. */
export function capabilitiesStore(client: OutlastClient): CapabilitiesStore {
  const store = stores.get(client) ?? new CapabilitiesStore(client);
  stores.set(client, store);
  return store;
}

/** The snapshot is null until the capabilities are loaded. */
export class CapabilitiesStore extends Store<Capabilities | null> {
  readonly #client: OutlastClient;
  #capabilities: Capabilities | null = null;
  #stop: (() => void) | null = null;

  constructor(client: OutlastClient) {
    super(sharedBy(client).schedule);
    this.#client = client;
    this.initialSnapshot();
  }

  protected render(): Capabilities | null {
    return this.#capabilities;
  }

  protected wake(): void {
    this.#stop ??= sharedBy(this.#client).environment.watch((change) => {
      if (change === "online" || change === "visible") this.#read();
    });
    this.#read();
  }

  protected rest(): void {
    this.#stop?.();
    this.#stop = null;
  }

  #read(): void {
    if (this.#capabilities !== null) return;
    this.#client.capabilities().then(
      (capabilities) => {
        this.#capabilities = capabilities;
        this.changed();
      },
      // If the server cannot be reached, it is asked again when the page becomes visible or the device online.
      () => {},
    );
  }
}
