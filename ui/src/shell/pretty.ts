/** Anything as text that a person can read: JSON with breaks, or the very text. */
export function pretty(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}
