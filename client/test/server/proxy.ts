/** A network that misbehaves: passes bytes on to a server, and cuts, stalls or resets connections. */

import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";

export interface Proxy {
  readonly url: string;
  /** Connections that were made so far. */
  readonly count: number;
  /** Ends all connections in an orderly way, as a proxy that restarts. */
  cut(): void;
  /** Ends all connections at once, as a router that forgets them. */
  reset(): void;
  /** Passes nothing on any more, without a word, on all connections that are open. */
  stall(): void;
  /** Cuts each further connection after so many bytes of answer; null to let them live. */
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
