/** The part of a long list that is in the page, given by log positions, which do not change when the list grows. */

/** Rows added at a time. */
export const STEP = 30;
/** Rows in the page at most. */
export const MOST = 90;

export interface Window {
  /** The first position shown; null for the last `STEP` rows. */
  readonly from: number | null;
  /** The last position shown; null for everything that follows. */
  readonly to: number | null;
}

export const AT_END: Window = { from: null, to: null };

export interface Range {
  readonly start: number;
  readonly end: number;
}

interface Placed {
  readonly seq: number;
}

export function rangeOf({ from, to }: Window, list: readonly Placed[]): Range {
  const end = to === null ? list.length : placeOf(list, to + 1);
  const start = from === null ? Math.max(0, end - STEP) : placeOf(list, from);
  return { start: Math.min(start, end), end };
}

/** Adds earlier rows, and drops rows at the end if there are too many. */
export function earlier(range: Range, list: readonly Placed[]): Window {
  const start = Math.max(0, range.start - STEP);
  return windowOf({ start, end: Math.min(range.end, start + MOST) }, list);
}

export function later(range: Range, list: readonly Placed[]): Window {
  const end = Math.min(list.length, range.end + STEP);
  return windowOf({ start: Math.max(range.start, end - MOST), end }, list);
}

/** Does not move when messages are added on either side. */
export function windowOf({ start, end }: Range, list: readonly Placed[]): Window {
  return {
    from: list[start]?.seq ?? null,
    to: end >= list.length ? null : (list[end - 1]?.seq ?? null),
  };
}

/** The index of the first row at or after `seq`. */
function placeOf(list: readonly Placed[], seq: number): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((list[middle]?.seq ?? 0) < seq) low = middle + 1;
    else high = middle;
  }
  return low;
}
