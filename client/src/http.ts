/** Requests and their answers: headers, time limits, trying again. */

import type { Environment } from "./environment.js";
import { readObject } from "./json.js";
import { networkError, OutlastError, refusal } from "./problem.js";

/** One try of a request that is not a stream. */
export const REQUEST_LIMIT_MS = 30_000;
/** How often a request is tried in all. Every command of the protocol may be sent twice without harm. */
export const MAX_TRIES = 6;
/** The wait after the first try; it doubles. */
const TRY_AGAIN_BASE_MS = 300;
/** No wait is longer, also if the server asks for more: then it is better to tell the person. */
const TRY_AGAIN_CAP_MS = 5_000;

export interface HttpOptions {
  readonly baseUrl: string;
  readonly fetch: typeof fetch;
  /** Asked before every request, so that a token may change. */
  readonly headers: () => Promise<Record<string, string>>;
  readonly environment: Environment;
}

export interface RequestOptions {
  readonly body?: object;
  readonly query?: object;
  readonly signal?: AbortSignal | undefined;
  /**
   * What a refusal means that came after a try whose answer was lost: that try may have done it. Answers
   * what to return instead, or undefined to fail.
   */
  readonly doneBefore?: (error: OutlastError, body: object | undefined) => unknown;
}

/** Where something is, by its id, and what belongs to it. */
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

  /** One try. Fails with an `OutlastError`, or as the signal says. */
  async send(method: string, path: string, options: RequestOptions, accept: string): Promise<Response> {
    const { body, query, signal = null } = options;
    const type = body && { "content-type": "application/json" };
    const headers = { accept, ...type, ...(await this.#options.headers()) };
    const init: RequestInit = {
      method,
      headers,
      signal,
      cache: "no-store",
      body: body ? JSON.stringify(body) : null,
    };
    const response = await this.#options.fetch(this.url(path, query), init).catch((cause: unknown) => {
      signal?.throwIfAborted();
      throw networkError("the server cannot be reached", cause);
    });
    if (!response.ok) throw await refusal(response);
    return response;
  }

  /** Sends, and sends again while there is no answer or the server asks for patience. Answers with the JSON. */
  async request<Answer>(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    for (let tries = 0, isAgain = false; ; isAgain = true) {
      const limit = AbortSignal.timeout(REQUEST_LIMIT_MS);
      const signal = AbortSignal.any([limit, options.signal ?? limit]);
      try {
        const response = await this.send(method, path, { ...options, signal }, "application/json");
        return (response.status === 204 ? undefined : await readAnswer(response)) as Answer;
      } catch (caught) {
        options.signal?.throwIfAborted();
        const error = limit.aborted ? unanswered() : caught;
        if (!(error instanceof OutlastError)) throw error;
        const instead = isAgain ? options.doneBefore?.(error, options.body) : undefined;
        if (instead !== undefined) return instead as Answer;
        // Where there is no network, a try that failed says nothing. Loopback needs none, so it is tried.
        if (this.#options.environment.isOnline() || error.status > 0) tries += 1;
        if (tries === MAX_TRIES || !mayPass(error)) throw error;
        await this.#rest(error, tries, options.signal);
      }
    }
  }

  /** Waits, but after a loss not longer than until somebody looks or the network is back. */
  #rest(error: OutlastError, tries: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const go = (): void => (unwatch(), resolve());
      const unwatch = this.#options.environment.watch((what) => {
        if (error.status === 0 && (what === "online" || what === "visible")) go();
      });
      setTimeout(go, waitAfter(error, tries));
      // The next try finds that it was given up.
      signal?.addEventListener("abort", go);
    });
  }
}

function unanswered(): OutlastError {
  return new OutlastError({ status: 0, code: "timeout", detail: "the server does not answer" });
}

async function readAnswer(response: Response): Promise<unknown> {
  const text = await response.text().catch((cause: unknown) => {
    throw networkError("the connection broke", cause);
  });
  const answer = readObject(text);
  if (answer !== null) return answer;
  const detail = "what answers here is not Outlast";
  throw new OutlastError({ status: response.status, code: "not_outlast", detail });
}

/** Whether the next try may be answered differently. */
function mayPass({ status }: OutlastError): boolean {
  return [0, 502, 503, 504].includes(status);
}

/** Half of it is left to chance, so that many do not come back together; the other half is waited for. */
function waitAfter({ retryAfterMs }: OutlastError, tries: number): number {
  const backoff = TRY_AGAIN_BASE_MS * 2 ** (tries || MAX_TRIES) * (0.5 + Math.random() / 2);
  return Math.min(TRY_AGAIN_CAP_MS, Math.max(backoff, retryAfterMs ?? 0));
}
