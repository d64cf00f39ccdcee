/** A step of a generation, from one time to another. */

export type SpanKind = "queued" | "attempt" | "wait" | "interrupted" | "tool" | "person";

export interface Span {
  readonly kind: SpanKind;
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly from: number;
  /** Null while it lasts. */
  readonly to: number | null;
  /** When the first text of an attempt arrived. */
  readonly firstWord: number | null;
  /** Why it failed, if it did. */
  readonly trouble: string | null;
  /** Whether its text was retracted. */
  readonly isRetracted: boolean;
}

export type Draft = { -readonly [Key in keyof Span]: Span[Key] };

export function newSpan(kind: SpanKind, name: string, from: number): Draft {
  return { kind, name, from, to: null, firstWord: null, trouble: null, isRetracted: false };
}
