/** An unreliable network: forwards bytes to a server, and cuts, stalls or resets connections. */

import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";

export interface Proxy {
  readonly url: string;
  /** The number of connections so far. */
  readonly count: number;
  /** Closes all connections cleanly, as a proxy that restarts. */
  cut(): void;
  /** Resets all connections, as a router that forgets them. */
  reset(): void;
  /** Silently stops forwarding on all open connections. */
  stall(): void;
  /** Cuts each further connection after this many bytes of response; null never does. */
  limit: (() => number) | null;
  close(): Promise<void>;
}

export async function startProxy(port: number): Promise<Proxy> {
  const pairs = new Set<readonly [Socket, Socket]>();
  let count = 0;
  const server = createServer((client) => {
    count += 1;
    const upstream = connect(port, "127.0.0.1");
    const pair = [client, upstream] as const;
    pairs.add(pair);
    let left = proxy.limit?.() ?? Number.POSITIVE_INFINITY;
    client.on("data", (bytes) => upstream.write(bytes));
    upstream.on("data", (bytes) => {
      client.write(bytes.subarray(0, left));
      left -= bytes.length;
      if (left <= 0) client.resetAndDestroy();
    });
    for (const [one, other] of [pair, [upstream, client]] as const) {
      one.on("error", () => {});
      one.on("close", () => {
        other.destroy();
        pairs.delete(pair);
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const proxy: Proxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    limit: null,
    get count() {
      return count;
    },
    cut: () => pairs.forEach(([client]) => client.destroy()),
    reset: () => pairs.forEach(([client]) => client.resetAndDestroy()),
    stall: () => pairs.forEach((pair) => pair.forEach((socket) => socket.removeAllListeners("data").pause())),
    async close() {
      pairs.forEach(([client]) => client.destroy());
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}
