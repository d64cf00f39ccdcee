/** What a conversation is called. The server names it when its first answer is complete. */

import { revealBidi } from "../markdown/invisible";

export function titleOf({ title }: { readonly title: string | null }): string {
  return title === null || title.trim() === "" ? "New chat" : revealBidi(title);
}
