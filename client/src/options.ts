/** The options of a client, and their defaults. */

import { eitherTransport } from "./either-transport.js";
import { surroundings } from "./environment.js";
import type { Environment } from "./environment.js";
import { Http } from "./http.js";
import { NewsDesk, tabChannel } from "./news.js";
import type { ChannelLike } from "./news.js";
import { Positions } from "./positions.js";
import type { StorageLike } from "./positions.js";
import { sseTransport } from "./sse-transport.js";
import { oncePerFrame } from "./store.js";
import type { Schedule } from "./store.js";
import type { Transport } from "./transport.js";
import { webSocketTransport } from "./websocket-transport.js";
import type { SocketClass } from "./websocket-transport.js";

export interface ClientOptions {
  /** The address of the server. Default: the page's origin, or `http://127.0.0.1:8787` outside of a page. */
  readonly baseUrl?: string;
  /** Sent as `Authorization: Bearer …`. A function is called before every request. */
  readonly token?: string | (() => string | Promise<string>);
  /** Sent with every request. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly fetch?: typeof fetch;
  /**
   * How to follow conversations. `websocket`: by WebSocket, with Server-Sent Events as the fallback. `auto`
   * (default): the same, but `sse` if `token`, `headers` or `fetch` is given, because a WebSocket supports none
   * of them.
   */
  readonly transport?: "auto" | "sse" | "websocket" | Transport;
  /** For Node 20, which has none: the package `ws`, for example. */
  readonly WebSocket?: SocketClass;
  /** Where the last position is stored. Default in a page: `localStorage`. Null stores it nowhere. */
  readonly storage?: StorageLike | null;
  /** When listeners are called. Default in a page: once per frame. */
  readonly schedule?: Schedule;
  readonly environment?: Environment;
  /** How tabs communicate. Default in a page: a `BroadcastChannel`. */
  readonly channel?: () => ChannelLike | null;
}

/** What the parts of a client share. */
export interface Shared {
  readonly http: Http;
  /** For conversations. Generations are always followed by Server-Sent Events. */
  readonly transport: Transport;
  readonly sse: Transport;
  readonly environment: Environment;
  readonly schedule: Schedule;
  readonly news: NewsDesk;
  readonly positions: Positions;
}

export function share(options: ClientOptions): Shared {
  const baseUrl = (options.baseUrl ?? globalThis.location?.origin ?? "http://127.0.0.1:8787").replace(
    /\/+$/,
    "",
  );
  // Wrapped, because browsers refuse a `fetch` that is called as a method of another object.
  const send: typeof fetch = options.fetch ?? ((input, init) => fetch(input, init));
  const { environment = surroundings } = options;
  const http = new Http({ baseUrl, fetch: send, headers: () => headersOf(options), environment });
  const sse = sseTransport(http);
  return {
    http,
    sse,
    transport: chooseTransport(options, http, sse),
    environment,
    schedule: options.schedule ?? oncePerFrame,
    news: new NewsDesk(options.channel ?? tabChannel(baseUrl)),
    positions: new Positions(options.storage, baseUrl),
  };
}

async function headersOf({ token, headers }: ClientOptions): Promise<Record<string, string>> {
  const bearer = typeof token === "function" ? await token() : token;
  return { ...headers, ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }) };
}

function chooseTransport(options: ClientOptions, http: Http, sse: Transport): Transport {
  const { transport = "auto", token, headers } = options;
  if (typeof transport === "object") return transport;
  const WebSocket = options.WebSocket ?? (globalThis.WebSocket as SocketClass | undefined);
  const needsFetch = (token ?? headers ?? options.fetch) !== undefined;
  if (WebSocket === undefined || transport === "sse" || (transport === "auto" && needsFetch)) return sse;
  return eitherTransport(webSocketTransport({ url: (path) => http.url(path), WebSocket }), sse);
}
