/** Request and response bodies, other than events and documents. */

import type { OutlastEvent } from "./event.js";
import type { ConversationDocument, Generation, GenerationStatus, RetryMode } from "./generation.js";
import type { Message } from "./message.js";
import type { Content } from "./pending.js";

/** Every call can be aborted. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface PageOptions extends CallOptions {
  /** The `nextCursor` of the previous page. */
  readonly cursor?: string | null;
  readonly limit?: number;
}

export interface ListGenerations extends PageOptions {
  readonly status?: GenerationStatus;
  readonly conversationId?: string;
}

export interface EventPageOptions extends CallOptions {
  readonly after?: number;
  readonly limit?: number;
}

export interface MessagePageOptions extends CallOptions {
  /** Only messages before this position. */
  readonly before?: number;
  readonly limit?: number;
}

/** What happens to a message that arrives while another is being answered. */
export type WhenBusy = "reject" | "queue" | "interrupt";

export interface StartGeneration extends CallOptions {
  /** Without it a new conversation is created. */
  readonly conversationId?: string | undefined;
  readonly content: Content;
  readonly model?: string | undefined;
  /** The idempotency key. Generated if you give none. */
  readonly requestId?: string | undefined;
  readonly whenBusy?: WhenBusy | undefined;
  readonly system?: string | undefined;
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
}

export interface StartedGeneration {
  readonly generationId: string;
  readonly conversationId: string;
  /** The user's message. */
  readonly messageId: string;
  readonly status: GenerationStatus;
}

/** The result of a command. `success` is false if another client was first. */
export interface Outcome {
  readonly success: boolean;
  readonly status: GenerationStatus;
}

export interface RetryOptions extends CallOptions {
  readonly mode?: RetryMode;
  readonly requestId?: string;
}

export interface Approval extends CallOptions {
  readonly decision: "approve" | "deny";
  /** From the question that was shown. If the question has changed since, the server refuses. */
  readonly hash?: string | undefined;
  readonly reason?: string;
  readonly always?: boolean;
}

/** A field that is left out stays as it is. */
export interface ConversationChange extends CallOptions {
  /** Null clears the title. */
  readonly title?: string | null;
  readonly metadata?: Readonly<Record<string, unknown>>;
}

export interface CreateConversation extends CallOptions {
  readonly title?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly requestId?: string;
}

export interface GenerationPage {
  readonly data: readonly Generation[];
  readonly nextCursor: string | null;
}

export interface ConversationPage {
  readonly data: readonly ConversationDocument[];
  readonly nextCursor: string | null;
}

export interface MessagePage {
  /** Ascending. */
  readonly data: readonly Message[];
  readonly hasMore: boolean;
}

export interface EventPage {
  readonly data: readonly OutlastEvent[];
  readonly nextAfter: number;
  readonly ended: boolean;
}

export interface Model {
  readonly id: string;
}

/** What a server offers. See `OutlastClient.capabilities`. */
export interface Capabilities {
  /** `outlast`, or `unknown` for a server that does not say. */
  readonly name: string;
  readonly version: string;
  /** The user that the server knows you as; `local` on a single-user server. */
  readonly user: string;
  /** Whether generations continue without a client. If not, closing the page ends the answer: say so. */
  readonly background: boolean;
  readonly transports: readonly string[];
  readonly durability: "commit" | "debounce" | "boundary";
  readonly models: readonly string[];
  readonly tools: readonly string[];
  readonly approvals: boolean;
  readonly sandbox: string;
}
