/** Request and response bodies, other than events and documents. */

import type * as server from "./generated/api.js";

export type {
  Capabilities,
  ConversationPage,
  EventPage,
  FilePage,
  GenerationPage,
  Instance,
  MessagePage,
  Model,
  Outcome,
  Overview,
  PutFile,
  Seen,
  StartedGeneration,
  ToolList,
  WhenBusy,
  WorkspaceFile,
} from "./generated/api.js";

/** Every call can be aborted. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface PageOptions extends CallOptions {
  /** The `nextCursor` of the previous page. */
  readonly cursor?: string | null;
  readonly limit?: number;
}

export interface ListConversations extends PageOptions {
  /** Only the conversation with this key. */
  readonly key?: string;
  /** Only conversations whose metadata have this value in this field. One field at most. */
  readonly metadata?: Readonly<Record<string, string>>;
}

export interface ListFiles extends PageOptions {
  /** Compare with the files as they were before this generation. */
  readonly since?: string;
}

export interface ListGenerations extends PageOptions {
  readonly status?: server.GenerationStatus;
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

/** The optional fields of a request. Undefined means absent, so callers need not pass null. */
type Optional<Body, Name extends keyof Body> = {
  readonly [Key in Name]?: Exclude<Body[Key], null> | undefined;
};

export interface StartGeneration
  extends
    CallOptions,
    Optional<server.StartGeneration, "conversationId" | "model" | "whenBusy" | "system" | "metadata"> {
  readonly content: server.Content;
  /** The idempotency key. Generated if you give none. */
  readonly requestId?: string | undefined;
}

export interface RetryOptions extends CallOptions, Optional<server.RetryGeneration, "mode"> {
  readonly requestId?: string | undefined;
}

export interface Approval
  extends CallOptions, Optional<server.Decide, "hash" | "reason" | "always" | "pattern"> {
  readonly decision: server.Decision;
}

/** A field that is left out stays as it is; null clears it. */
export interface ConversationChange extends CallOptions {
  readonly title?: server.ConversationChange["title"];
  readonly metadata?: server.ConversationChange["metadata"];
}

export interface CreateConversation
  extends CallOptions, Optional<server.CreateConversation, "title" | "metadata"> {
  readonly requestId?: string | undefined;
}
