/** Generations and conversations as the server returns them. */

import type { ConversationStatus } from "./generated/api.js";

export type {
  Approval as PendingApproval,
  CancelReason,
  Conversation as ConversationDocument,
  ConversationStatus,
  Generation,
  GenerationStatus,
  RetryMode,
  RetryOf,
} from "./generated/api.js";

/** The statuses in which every generation of a conversation has ended. */
const AT_REST: readonly ConversationStatus[] = ["idle", "complete", "cancelled", "error"];

/** Whether a conversation has an unfinished generation. */
export function isUnderWay(status: ConversationStatus): boolean {
  return !AT_REST.includes(status);
}
