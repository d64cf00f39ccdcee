/** A duration for people: `400 ms`, `1.5 s`, `12 s`, `3 min 5 s`. */
export function duration(ms: number): string {
  if (ms < 1) return "0 s";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 9_950 && ms % 1_000 !== 0) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
