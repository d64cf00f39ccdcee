import { saveDraft } from "./drafts";
import { forgetUnsent } from "./unsent";

/** Removes everything that this browser keeps for a conversation that was deleted. */
export function forgetConversation(user: string, id: string): void {
  saveDraft(user, id, "");
  forgetUnsent(user, id);
}
