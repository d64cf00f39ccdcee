/** What goes wrong: refusals of the server (RFC 9457), and a server that cannot be reached. */

import { readObject } from "./json.js";

/** The codes of the server, and those that this client adds. An unknown one may come: do not rely on the list. */
export type ProblemCode =
  | "invalid_json"
  | "invalid_request"
  | "unauthorized"
  | "foreign_origin"
  | "not_found"
  | "method_not_allowed"
  | "conversation_busy"
  | "idempotency_conflict"
  | "already_ended"
  | "already_asked"
  | "already_decided"
  | "approval_changed"
  | "not_interrupted"
  | "not_retryable"
  | "cursor_ahead"
  | "too_large"
  | "limit_reached"
  | "store_broken"
  | "store_unavailable"
  | "draining"
  /** The server could not be reached, or the connection broke before it answered. */
  | "network"
  /** It did not answer in time. */
  | "timeout"
  /** It was asked for something that is not there: to resume, for example, where nothing is interrupted. */
  | "nothing_there"
  /** Something answered that does not speak this protocol. */
  | "not_outlast"
  | (string & {});

/** A problem document. It may carry more than this: `generationId`, `field`, `lastSeq`, … */
export interface Problem {
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** For programs. Keeps its meaning. */
  readonly code: ProblemCode;
  /** For people. */
  readonly detail: string;
  readonly [extra: string]: unknown;
}

/** Every promise of this package that fails, fails with this, or with an `AbortError` if you aborted it. */
export class OutlastError extends Error implements Pick<Problem, "status" | "code" | "detail"> {
  override readonly name = "OutlastError";
  readonly status: number;
  readonly code: ProblemCode;
  readonly detail: string;

  constructor(
    /** The whole document. */
    readonly problem: Problem,
    /** How long the server asks to wait before the next try, if it does. */
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

/** There is nothing, here in the client, that this could be done to. */
export function nothingThere(): OutlastError {
  return new OutlastError({
    status: 0,
    code: "nothing_there",
    detail: "there is nothing to do this to",
  });
}

/** Reads a refusal. Proxies in between answer in their own ways, so nothing is taken for granted. */
export async function refusal(response: Response): Promise<OutlastError> {
  const { status } = response;
  const said = readObject(await response.text().catch(() => "")) ?? {};
  const code = String(said["code"] ?? "not_outlast");
  const detail = String(said["detail"] ?? `the server answered ${status}`);
  return new OutlastError({ ...said, status, code, detail }, retryAfter(response.headers.get("retry-after")));
}

/** The server says it in seconds. A date, as some proxies write it, is as good as nothing. */
function retryAfter(value: string | null): number | null {
  const seconds = Number(value ?? NaN);
  return seconds >= 0 ? seconds * 1000 : null;
}
