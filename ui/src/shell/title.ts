/** The title of a conversation, as it is shown. The server sets one when the first message is sent. */

import { revealBidi } from "../markdown/invisible";

export const NO_TITLE = "New chat";

export function titleOf({ title }: { readonly title: string | null }): string {
  return title === null || title.trim() === "" ? NO_TITLE : revealBidi(title);
}
