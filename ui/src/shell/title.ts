/** What a conversation is called. The server names it when its first answer is complete. */

import { showTurns } from "../markdown/bidi";

export function titleOf({ title }: { readonly title: string | null }): string {
  return title === null || title.trim() === "" ? "New chat" : showTurns(title);
}
