export { OutlastClient } from "./client.js";
export type { ClientOptions } from "./options.js";
export type * from "./api.js";
export type { Conversation, ConversationSnapshot } from "./conversation.js";
export { isEnd } from "./event.js";
export type {
  ChatEvent,
  EndEvent,
  NotificationEvent,
  OutlastEvent,
  SnapshotEvent,
  ToolEvent,
} from "./event.js";
export { apply, applyAll } from "./fold.js";
export { isUnderWay } from "./generation.js";
export type {
  CancelReason,
  ConversationDocument,
  ConversationStatus,
  Generation,
  GenerationStatus,
  PendingApproval,
  RetryMode,
  RetryOf,
} from "./generation.js";
export type { GenerationState } from "./generation-state.js";
export type { SubscribeOptions } from "./generation-stream.js";
export type { Connection } from "./machine.js";
export type {
  ImagePart,
  Message,
  MessageStatus,
  Part,
  Role,
  TextPart,
  ThinkingPart,
  ToolResultPart,
  ToolUsePart,
} from "./message.js";
export { contentText } from "./pending.js";
export type { Content, PendingMessage, SendOptions } from "./pending.js";
export type { Position, StorageLike } from "./positions.js";
export { OutlastError } from "./problem.js";
export type { Problem, ProblemCode } from "./problem.js";
export type { Environment } from "./environment.js";
export type { ChannelLike } from "./news.js";
export type { Schedule } from "./store.js";
export type { Sink, Target, Transport } from "./transport.js";
export type { SocketClass, SocketLike } from "./websocket-transport.js";
export type { OutputPiece, ToolOutputs } from "./tool-outputs.js";
export { emptyView, partsOf, textOf } from "./view.js";
export type { ActiveRun, GenerationEnd, QueuedRun, View, ScheduledRetry } from "./view.js";
