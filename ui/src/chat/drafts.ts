/** What was written and not sent, for each conversation, across reloads. */

export function readDraft(id: string | null): string {
  try {
    return localStorage.getItem(keyOf(id)) ?? "";
  } catch {
    return "";
  }
}

export function saveDraft(id: string | null, text: string): void {
  try {
    if (text.trim() === "") localStorage.removeItem(keyOf(id));
    else localStorage.setItem(keyOf(id), text);
  } catch {
    // Full or forbidden: then a reload forgets it.
  }
}

function keyOf(id: string | null): string {
  return `outlast:draft:${id ?? "new"}`;
}
