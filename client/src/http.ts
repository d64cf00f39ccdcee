/** HTTP requests: headers, timeouts, retries. */

import type { Environment } from "./environment.js";
import { readObject } from "./json.js";
import { networkError, OutlastError, refusal } from "./problem.js";

/** The timeout of one try. Streams have none. */
export const REQUEST_LIMIT_MS = 30_000;
/** Tries in total. Every command of the protocol is idempotent, so retries are safe. */
export const MAX_TRIES = 6;
/** The delay after the first try. It doubles with each try. */
const TRY_AGAIN_BASE_MS = 300;
/** The longest delay, even if the server asks for more: then it is better to report the error. */
const TRY_AGAIN_CAP_MS = 5_000;

export interface HttpOptions {
  readonly baseUrl: string;
  readonly fetch: typeof fetch;
  /** Called before every request, so that a token may change. */
  readonly headers: () => Promise<Record<string, string>>;
  readonly environment: Environment;
}

export interface RequestOptions {
  readonly body?: object;
  /** A body that is not JSON. */
  readonly raw?: BodyInit;
  readonly query?: object;
  readonly signal?: AbortSignal | undefined;
  /**
   * Interprets a refusal that follows a try whose response was lost, because that try may have succeeded. Returns
   * the result to use instead, or undefined to fail.
   */
  readonly doneBefore?: (error: OutlastError, body: object | undefined) => unknown;
}

export function pathOf(kind: "conversations" | "generations", ...rest: readonly string[]): string {
  return `/v1/${kind}/${rest.map(encodeURIComponent).join("/")}`;
}

export class Http {
  readonly #options: HttpOptions;

  constructor(options: HttpOptions) {
    this.#options = options;
  }

  url(path: string, query: object = {}): string {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const search = new URLSearchParams(given).toString();
    return this.#options.baseUrl + path + (search && `?${search}`);
  }

  /** One try. Fails with an `OutlastError`, or with the signal's reason. */
  async send(method: string, path: string, options: RequestOptions, accept: string): Promise<Response> {
    const { body, raw = null, query, signal = null } = options;
    const type = body && { "content-type": "application/json" };
    const headers = { accept, ...type, ...(await this.#options.headers()) };
    const init: RequestInit = {
      method,
      headers,
      signal,
      cache: "no-store",
      body: body ? JSON.stringify(body) : raw,
    };
    const response = await this.#options.fetch(this.url(path, query), init).catch((cause: unknown) => {
      signal?.throwIfAborted();
      throw networkError("could not reach the server", cause);
    });
    if (!response.ok) throw await refusal(response);
    return response;
  }

  /** Sends a request, with retries while the server does not respond or is unavailable. Returns the JSON. */
  async request<Body>(method: string, path: string, options: RequestOptions = {}): Promise<Body> {
    for (let tries = 0, isAgain = false; ; isAgain = true) {
      const limit = AbortSignal.timeout(REQUEST_LIMIT_MS);
      const signal = AbortSignal.any([limit, options.signal ?? limit]);
      try {
        const response = await this.send(method, path, { ...options, signal }, "application/json");
        return (response.status === 204 ? undefined : await readBody(response)) as Body;
      } catch (caught) {
        options.signal?.throwIfAborted();
        const error = limit.aborted ? timedOut() : caught;
        if (!(error instanceof OutlastError)) throw error;
        const instead = isAgain ? options.doneBefore?.(error, options.body) : undefined;
        if (instead !== undefined) return instead as Body;
        // Without a network a failed try does not count. It is made anyway, because loopback needs no network.
        if (this.#options.environment.isOnline() || error.status > 0) tries += 1;
        if (tries === MAX_TRIES || !mayPass(error)) throw error;
        await this.#rest(error, tries, options.signal);
      }
    }
  }

  /** Waits before the next attempt. After a network error the wait ends early if the page becomes visible or online. */
  #rest(error: OutlastError, tries: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const go = (): void => (unwatch(), resolve());
      const unwatch = this.#options.environment.watch((what) => {
        if (error.status === 0 && (what === "online" || what === "visible")) go();
      });
      setTimeout(go, waitAfter(error, tries));
      // The next try finds the signal aborted.
      signal?.addEventListener("abort", go);
    });
  }
}

function timedOut(): OutlastError {
  return new OutlastError({ status: 0, code: "timeout", detail: "the server did not respond in time" });
}

async function readBody(response: Response): Promise<unknown> {
  const text = await response.text().catch((cause: unknown) => {
    throw networkError("the connection was lost", cause);
  });
  const body = readObject(text);
  if (body !== null) return body;
  const detail = "the response is not from an Outlast server";
  throw new OutlastError({ status: response.status, code: "not_outlast", detail });
}

/** Whether a retry may succeed. */
function mayPass({ status }: OutlastError): boolean {
  return [0, 502, 503, 504].includes(status);
}

/** Half of the delay is random, so that many clients do not retry at the same time. */
function waitAfter({ retryAfterMs }: OutlastError, tries: number): number {
  const backoff = TRY_AGAIN_BASE_MS * 2 ** (tries || MAX_TRIES) * (0.5 + Math.random() / 2);
  return Math.min(TRY_AGAIN_CAP_MS, Math.max(backoff, retryAfterMs ?? 0));
}
