/** Text that was written but not sent, for each conversation. It survives a reload. */

import { readStored, store } from "../shell/stored";

export function readDraft(user: string, id: string | null): string {
  return readStored(user, nameOf(id)) ?? "";
}

export function saveDraft(user: string, id: string | null, text: string): void {
  store(user, nameOf(id), text.trim() === "" ? null : text);
}

function nameOf(id: string | null): string {
  return `draft:${id ?? "new"}`;
}
