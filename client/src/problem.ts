/** Errors: refusals of the server (RFC 9457), and failures to reach it. */

import type * as server from "./generated/api.js";
import { readObject } from "./json.js";

/** The codes of the server, and those that this client adds. A newer server may send others. */
export type ProblemCode =
  | server.ProblemCode
  /** The server could not be reached, or the connection was lost before it responded. */
  | "network"
  /** The server did not respond in time. */
  | "timeout"
  /** The action has no object: there is nothing to stop, for example. */
  | "nothing_there"
  /** The response is not from an Outlast server. */
  | "not_outlast"
  | (string & {});

/** A problem document. */
export interface Problem extends server.About {
  /** The HTTP status; 0 if there was no response. */
  readonly status: number;
  /** For programs. Its meaning does not change. */
  readonly code: ProblemCode;
  /** For people. */
  readonly detail: string;
  readonly [extra: string]: unknown;
}

/** Every promise of this package rejects with this, or with an `AbortError` if you aborted the call. */
export class OutlastError extends Error implements Pick<Problem, "status" | "code" | "detail"> {
  override readonly name = "OutlastError";
  readonly status: number;
  readonly code: ProblemCode;
  readonly detail: string;

  constructor(
    /** The whole document. */
    readonly problem: Problem,
    /** The server's `Retry-After`, if it sent one. */
    readonly retryAfterMs: number | null = null,
    cause?: unknown,
  ) {
    super(problem.detail, { cause });
    ({ status: this.status, code: this.code, detail: this.detail } = problem);
  }
}

export function networkError(detail: string, cause?: unknown): OutlastError {
  return new OutlastError({ status: 0, code: "network", detail }, null, cause);
}

/** The error of an action that has nothing to act on, such as Stop while nothing runs. */
export function nothingThere(): OutlastError {
  return new OutlastError({
    status: 0,
    code: "nothing_there",
    detail: "there is nothing to act on",
  });
}

/** Reads a refusal. A proxy may respond in its own format, so every field is optional. */
export async function refusal(response: Response): Promise<OutlastError> {
  const { status } = response;
  const said = readObject(await response.text().catch(() => "")) ?? {};
  const code = String(said["code"] ?? "not_outlast");
  const detail = String(said["detail"] ?? `the server responded with status ${status}`);
  return new OutlastError({ ...said, status, code, detail }, retryAfter(response.headers.get("retry-after")));
}

/** Outlast sends seconds. A date, as some proxies send, is ignored. */
function retryAfter(value: string | null): number | null {
  const seconds = Number(value ?? NaN);
  return seconds >= 0 ? seconds * 1000 : null;
}
