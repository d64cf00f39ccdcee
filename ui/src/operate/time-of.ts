/** A time, as an operator reads it. */
export function timeOf(at: string): string {
  return new Date(at).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
}
