/** How a file is written: its size for people, and its address. */

export function sizeOf(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  const [value, unit] = bytes < 1_000_000 ? [bytes / 1_000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

export function fileHref(conversationId: string, path: string): string {
  const steps = path.split("/").map(encodeURIComponent).join("/");
  return `/v1/conversations/${encodeURIComponent(conversationId)}/files/${steps}`;
}
