/**
 * How an event changes a view: the same fold as the server's, checked by the logs in `fixtures/`.
 *
 * Objects that an event does not touch keep their identity, so that a renderer can compare by reference. A delta
 * leaves `messages` alone: its text goes into the overlay, which becomes the message when the segment closes.
 */

import type {
  ChatEvent,
  ConversationUpdate,
  EndEvent,
  NotificationEvent,
  OutlastEvent,
  ToolEvent,
} from "./event.js";
import type { ConversationStatus } from "./generation.js";
import { addText, plainText, sign } from "./message.js";
import type { Message, MessageStatus, Part } from "./message.js";
import type { ActiveRun, GenerationEnd, QueuedRun, View } from "./view.js";

type ToolEnd = ToolEvent & { readonly type: "tool.end" };
type Thinking = (OutlastEvent & { readonly type: "thinking.delta" })["payload"];
type Asked = NonNullable<ActiveRun["pendingApprovals"]>;
type Running = NonNullable<ActiveRun["runningTools"]>;
type Delegations = NonNullable<ActiveRun["delegations"]>;

/** Applies one event. This never fails, because the event already happened. */
export function apply(before: View, event: OutlastEvent): View {
  if (event.type === "snapshot") return event.payload;
  const view = advance(before, event);
  switch (event.type) {
    case "chat.delta":
      return say(view, event.payload.messageId, "text", event.payload.text);
    case "thinking.delta":
      return think(view, event.payload);
    case "conversation.updated":
      return update(view, event.payload);
    case "message.added":
      return { ...view, messages: [...view.messages, event.payload.message] };
    case "generation.queued":
      return enqueue(view, event);
    case "chat.started":
      return start(view, event);
    case "assistant.segment.started":
      return open(view, event);
    case "tool.start":
      return ask(view, event);
    case "tool.end":
      return finish(view, event);
    case "tool.began":
      return begin(view, event);
    case "delegation.changed": {
      const { toolUseId } = event.payload;
      return delegate(view, event.generationId, (known) =>
        known.some((one) => one.toolUseId === toolUseId)
          ? known.map((one) => (one.toolUseId === toolUseId ? event.payload : one))
          : [...known, event.payload],
      );
    }
    case "sandbox.changed":
      return changeSandbox(view, event);
    case "approval.requested":
      return wait(view, event.generationId, (asked) => [...asked, event.payload]);
    case "approval.resolved": {
      const { toolUseId } = event.payload;
      return wait(view, event.generationId, (asked) => asked.filter((call) => call.toolUseId !== toolUseId));
    }
    case "assistant.segment.ended":
      return close(view, event.generationId, "complete", null);
    case "attempt.retracted":
      return wait(retract(view, event.payload.messageIds), event.generationId, () => []);
    case "retry.scheduled":
      return delay(view, event);
    case "chat.interrupted":
      return turn(view, event.generationId, "interrupted");
    case "chat.resumed":
      return turn(view, event.generationId, "running");
    case "chat.done":
    case "chat.error":
    case "chat.cancelled":
      return end(view, event);
    default:
      // These, and events of a newer server, change only the position.
      event satisfies ToolEvent | NotificationEvent | { readonly type: "usage" };
      return view;
  }
}

/** Applies several events in order. */
export function applyAll(view: View, events: Iterable<OutlastEvent>): View {
  for (const event of events) view = apply(view, event);
  return view;
}

/** Every event sets the position, and every event but text the time. */
function advance(view: View, { seq: lastSeq, ts, type }: OutlastEvent): View {
  const isText = type === "chat.delta" || type === "thinking.delta";
  const updatedAt = isText ? view.conversation.updatedAt : ts;
  return { ...view, conversation: { ...view.conversation, lastSeq, updatedAt }, lastSeq };
}

function update(view: View, change: ConversationUpdate): View {
  const { title = view.conversation.title, metadata = view.conversation.metadata } = change;
  const files = change.files ?? view.conversation.files;
  const key = change.key ?? view.conversation.key;
  const named = key === undefined ? {} : { key };
  return { ...view, conversation: { ...view.conversation, title, metadata, files, ...named } };
}

function think(view: View, { messageId, text, signature }: Thinking): View {
  if (text !== "") view = say(view, messageId, "thinking", text);
  const parts = view.overlayParts[messageId];
  if (!parts || !signature) return view;
  return { ...view, overlayParts: { ...view.overlayParts, [messageId]: sign(parts, signature) } };
}

function say(view: View, messageId: string, type: "text" | "thinking", text: string): View {
  const parts = view.overlayParts[messageId];
  // The server records no text for a message that is not open. If a log has some anyway, it is ignored.
  if (!parts) return view;
  const overlayParts = { ...view.overlayParts, [messageId]: addText(parts, type, text) };
  if (type === "thinking") return { ...view, overlayParts };
  // Appended to the string, so that a delta costs no more in a long answer than in a short one.
  const overlays = { ...view.overlays, [messageId]: (view.overlays[messageId] ?? "") + text };
  return { ...view, overlays, overlayParts };
}

function enqueue(view: View, event: ChatEvent & { readonly type: "generation.queued" }): View {
  const { generationId, requestId, payload } = event;
  if (generationId === null || requestId === null) return view;
  const queue = [...view.queue, { generationId, requestId, model: payload.model }];
  if (payload.parent) view = { ...view, conversation: { ...view.conversation, parent: payload.parent } };
  return view.activeRun === null ? nextInTurn({ ...view, queue }) : counted({ ...view, queue });
}

/** The first in the queue becomes the active run, before it has started. */
function nextInTurn(view: View): View {
  const [next, ...queue] = view.queue;
  return next ? counted(withRun({ ...view, queue }, next)) : view;
}

function withRun(view: View, { generationId, requestId, model }: QueuedRun): View {
  const activeRun: ActiveRun = {
    generationId,
    requestId,
    status: "queued",
    model,
    attempt: 0,
    startedAt: null,
    queued: 0,
  };
  const generationStatus: ConversationStatus = "generating";
  const conversation = { ...view.conversation, generationStatus, currentGenerationId: generationId };
  return { ...view, conversation, activeRun, lastEnd: null };
}

function counted(view: View): View {
  const run = view.activeRun;
  if (run === null || run.queued === view.queue.length) return view;
  return { ...view, activeRun: { ...run, queued: view.queue.length } };
}

function start(view: View, event: ChatEvent & { readonly type: "chat.started" }): View {
  const waiting = view.queue.find((run) => run.generationId === event.generationId);
  if (waiting)
    view = counted(withRun({ ...view, queue: view.queue.filter((run) => run !== waiting) }, waiting));
  const run = view.activeRun;
  if (run === null || run.generationId !== event.generationId) return view;
  const { attempt, round } = event.payload;
  const activeRun = { ...run, attempt, startedAt: run.startedAt ?? event.ts, ...(round && { round }) };
  return turn({ ...view, activeRun }, event.generationId, "running");
}

function delay(
  view: View,
  { generationId, payload, ts }: ChatEvent & { readonly type: "retry.scheduled" },
): View {
  const run = view.activeRun;
  return run?.generationId === generationId
    ? { ...view, activeRun: { ...run, retry: { ...payload, ts } } }
    : view;
}

function open(view: View, event: ChatEvent & { readonly type: "assistant.segment.started" }): View {
  const message = newMessage(view, event);
  return {
    ...view,
    messages: [...view.messages, message],
    overlays: { ...view.overlays, [message.id]: "" },
    overlayParts: { ...view.overlayParts, [message.id]: [] },
  };
}

/** A tool call is a message of its own, complete from the start. */
function ask(view: View, event: ChatEvent & { readonly type: "tool.start" }): View {
  const { toolUseId: id, toolName: name, toolInput: input } = event.payload;
  const parts: readonly Part[] = [{ type: "tool_use", id, name, input }];
  const message: Message = { ...newMessage(view, event), role: "tool", status: "complete", parts };
  return { ...view, messages: [...view.messages, message] };
}

/** The result is added to the message of the call. */
function finish(before: View, { generationId, payload, ts }: ToolEnd): View {
  const { messageId, toolUseId, result: content, isError, exitCode, outcome } = payload;
  let durationMs: number | undefined;
  const ran = run(before, generationId, (tools) =>
    tools.filter((tool) => {
      if (tool.toolUseId !== toolUseId) return true;
      durationMs = Math.max(0, Date.parse(ts) - Date.parse(tool.startedAt));
      return false;
    }),
  );
  let child: string | undefined;
  const view = delegate(ran, generationId, (known) =>
    known.filter((one) => {
      if (one.toolUseId !== toolUseId) return true;
      child = one.conversationId;
      return false;
    }),
  );
  const ended: Part = {
    type: "tool_result",
    toolUseId,
    content,
    isError,
    ...(exitCode != null && { exitCode }),
    ...(outcome != null && { outcome }),
    ...(durationMs !== undefined && { durationMs }),
    ...(child !== undefined && { conversationId: child }),
  };
  const add = (message: Message) =>
    message.id === messageId ? { ...message, parts: [...message.parts, ended] } : message;
  return { ...view, messages: view.messages.map(add) };
}

function begin(
  view: View,
  { generationId, payload, ts: startedAt }: ToolEvent & { readonly type: "tool.began" },
): View {
  const { toolUseId, executionId, place } = payload;
  return run(view, generationId, (tools) => [
    ...tools.filter((tool) => tool.toolUseId !== toolUseId),
    { toolUseId, executionId, startedAt, ...(place && { place }) },
  ]);
}

/** Changes the tools that are running. */
function run(view: View, generation: string | null, change: (tools: Running) => Running): View {
  if (view.activeRun?.generationId !== generation) return view;
  const { runningTools: before = [], ...rest } = view.activeRun as ActiveRun;
  const runningTools = change(before);
  return { ...view, activeRun: runningTools.length > 0 ? { ...rest, runningTools } : rest };
}

/** Changes what is known of sub-agents, and the status with their questions. */
function delegate(view: View, generation: string | null, change: (known: Delegations) => Delegations): View {
  const active = view.activeRun;
  if (active?.generationId !== generation) return view;
  const { delegations: before = [], ...rest } = active as ActiveRun;
  const delegations = change(before);
  if (before.length === 0 && delegations.length === 0) return view;
  const activeRun = delegations.length > 0 ? { ...rest, delegations } : rest;
  const interrupted = active.status === "interrupted";
  return turn({ ...view, activeRun }, generation, interrupted ? "interrupted" : "running");
}

/** A run that waits for a person is paused with its sandbox. What ran in a sandbox that is gone no longer runs;
 * what runs elsewhere does. */
function changeSandbox(
  before: View,
  { generationId, payload }: ToolEvent & { readonly type: "sandbox.changed" },
): View {
  const { sandboxId, state: sandboxState } = payload;
  const isGone = sandboxState === "killed" || sandboxState === "lost";
  const conversation = { ...before.conversation, sandboxId: isGone ? null : sandboxId, sandboxState };
  let view: View = { ...before, conversation };
  if (isGone) view = run(view, generationId, (tools) => tools.filter((tool) => tool.place));
  const active = view.activeRun;
  const waits = active?.status === "awaiting_approval" || active?.status === "paused";
  if (!waits || active.generationId !== generationId) return view;
  const status = sandboxState === "paused" || sandboxState === "killed" ? "paused" : "awaiting_approval";
  return {
    ...view,
    conversation: { ...conversation, generationStatus: status },
    activeRun: { ...active, status },
  };
}

/** Changes the questions that wait for a person, and the status with them. */
function wait(view: View, generation: string | null, change: (asked: Asked) => Asked): View {
  const run = view.activeRun;
  if (run?.generationId !== generation) return view;
  const { pendingApprovals: before = [], ...rest } = run as ActiveRun;
  const pendingApprovals = change(before);
  if (pendingApprovals.length > 0)
    return turn({ ...view, activeRun: { ...rest, pendingApprovals } }, generation, "running");
  return before.length > 0 ? turn({ ...view, activeRun: rest }, generation, "running") : view;
}

function newMessage(
  view: View,
  event: ChatEvent & { readonly payload: { readonly messageId: string } },
): Message {
  return {
    id: event.payload.messageId,
    conversationId: view.conversation.id,
    generationId: event.generationId,
    role: "assistant",
    content: "",
    parts: [],
    status: "streaming",
    errorMessage: null,
    seq: event.seq,
    createdAt: event.ts,
  };
}

/** The overlay becomes the message. */
function close(view: View, generation: string | null, status: MessageStatus, error: string | null): View {
  const messages = [...view.messages];
  const closed: string[] = [];
  for (const [id, parts] of Object.entries(view.overlayParts)) {
    const place = messages.findLastIndex((message) => message.id === id);
    const message = messages[place];
    if (message === undefined || message.generationId !== generation) continue;
    messages[place] = { ...message, content: plainText(parts), parts, status, errorMessage: error };
    closed.push(id);
  }
  return closed.length === 0 ? view : { ...view, messages, ...overlaysWithout(view, closed) };
}

function overlaysWithout(view: View, ids: readonly string[]): Pick<View, "overlays" | "overlayParts"> {
  const overlays = { ...view.overlays };
  const overlayParts = { ...view.overlayParts };
  for (const id of ids) {
    delete overlays[id];
    delete overlayParts[id];
  }
  return { overlays, overlayParts };
}

function retract(view: View, ids: readonly string[]): View {
  const gone = new Set(ids);
  const messages = view.messages.filter((message) => !gone.has(message.id));
  return { ...view, messages, ...overlaysWithout(view, ids) };
}

/** A run with open questions waits instead of running. A scheduled retry is over. */
function turn(view: View, generation: string | null, to: "running" | "interrupted"): View {
  const run = view.activeRun;
  if (run === null || run.generationId !== generation) return view;
  const waiting = run.status === "paused" ? "paused" : "awaiting_approval";
  const asked = run.pendingApprovals ?? run.delegations?.some(({ state }) => state.approvals?.length);
  const status = to === "running" && asked ? waiting : to;
  const generationStatus: ConversationStatus = status === "running" ? "generating" : status;
  const conversation = { ...view.conversation, generationStatus };
  const { retry: _, ...rest } = run;
  return { ...view, conversation, activeRun: { ...rest, status } };
}

function end(before: View, event: EndEvent): View {
  const lastEnd = endOf(event);
  const ended = ENDS[event.type];
  const status: "complete" | "cancelled" | "error" = ended === "completed" ? "complete" : ended;
  const view = close(before, event.generationId, status, lastEnd.errorMessage);
  if (view.activeRun?.generationId === event.generationId) {
    const conversation = { ...view.conversation, generationStatus: status };
    return nextInTurn({ ...view, conversation, activeRun: null, lastEnd });
  }
  const queue = view.queue.filter((run) => run.generationId !== event.generationId);
  return queue.length === view.queue.length ? view : counted({ ...view, queue });
}

const ENDS = { "chat.done": "completed", "chat.error": "error", "chat.cancelled": "cancelled" } as const;

function endOf({ generationId, type, payload }: EndEvent): GenerationEnd {
  const { finishReason, code, reason, errorMessage }: Partial<Record<string, string>> = payload;
  // An end without a generation matches no run, so it ends nothing.
  return {
    generationId: generationId as string,
    status: ENDS[type],
    reason: finishReason ?? code ?? reason ?? null,
    errorMessage: errorMessage ?? null,
  };
}
