/** Requests and their answers: headers, time limits, trying again. */

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
}

export interface RequestOptions {
  readonly body?: object;
  readonly query?: object;
  readonly signal?: AbortSignal | undefined;
  /**
   * What a refusal means that came after a try whose answer was lost: that try may have done it. Answers
   * what to return instead, or undefined to fail.
   */
  readonly doneBefore?: (error: OutlastError) => unknown;
}

/** Where something is, by its id. */
export function pathOf(kind: "conversations" | "generations", id: string): string {
  return `/v1/${kind}/${encodeURIComponent(id)}`;
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
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#tryOnce<Answer>(method, path, options);
      } catch (error) {
        if (!(error instanceof OutlastError)) throw error;
        const instead = tries > 1 ? options.doneBefore?.(error) : undefined;
        if (instead !== undefined) return instead as Answer;
        if (tries === MAX_TRIES || !mayPass(error)) throw error;
        await delay(waitAfter(tries, error), options.signal);
      }
    }
  }

  async #tryOnce<Answer>(method: string, path: string, options: RequestOptions): Promise<Answer> {
    const limit = AbortSignal.timeout(REQUEST_LIMIT_MS);
    const signal = options.signal === undefined ? limit : AbortSignal.any([options.signal, limit]);
    try {
      const response = await this.send(method, path, { ...options, signal }, "application/json");
      return (response.status === 204 ? undefined : await readAnswer(response)) as Answer;
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!limit.aborted) throw error;
      throw new OutlastError({ status: 0, code: "timeout", detail: "the server does not answer" });
    }
  }
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

function waitAfter(tries: number, error: OutlastError): number {
  const backoff = Math.random() * TRY_AGAIN_BASE_MS * 2 ** tries;
  return Math.min(TRY_AGAIN_CAP_MS, Math.max(backoff, error.retryAfterMs ?? 0));
}

function delay(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
