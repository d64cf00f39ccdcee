/** A conversation as a store, with everything that can be done in it. */

import type * as api from "./api.js";
import type { OutlastClient } from "./client.js";
import type { OutlastEvent } from "./event.js";
import { applyAll } from "./fold.js";
import { Follower } from "./follower.js";
import { generationOf } from "./generation-state.js";
import type { GenerationState } from "./generation-state.js";
import { isUnderWay } from "./generation.js";
import type { PendingApproval, RetryMode } from "./generation.js";
import { pathOf } from "./http.js";
import type { Connection } from "./machine.js";
import type { News } from "./news.js";
import type { Shared } from "./options.js";
import { Outbox } from "./outbox.js";
import type { Content, PendingMessage, SendOptions } from "./pending.js";
import { nothingThere, OutlastError } from "./problem.js";
import { randomId } from "./random-id.js";
import { Store } from "./store.js";
import { collect, firstOpenCall } from "./tool-outputs.js";
import type { ToolOutputs } from "./tool-outputs.js";
import { emptyView } from "./view.js";
import type { GenerationEnd, View } from "./view.js";

export interface ConversationSnapshot {
  /** Null until the first message of a new conversation is saved. */
  readonly id: string | null;
  /** Null until it is loaded. */
  readonly view: View | null;
  /** Messages that are being sent. Show them after those of the view. */
  readonly pending: readonly PendingMessage[];
  readonly connection: Connection;
  /** The current generation, or the last one. */
  readonly generation: GenerationState | null;
  /** Whether an answer is being generated. False while it waits for a person. */
  readonly isGenerating: boolean;
  readonly lastEnd: GenerationEnd | null;
  readonly isLoadingOlder: boolean;
  /** What running tools have written so far. */
  readonly toolOutputs: ToolOutputs;
  /** Why the last action failed. The next action clears it. The error of a message goes with the message. */
  readonly error: OutlastError | null;
}

/** What identifies a question to a person. */
export type Question = Pick<PendingApproval, "toolUseId" | "hash">;

export class Conversation extends Store<ConversationSnapshot> {
  readonly #client: OutlastClient;
  readonly #shared: Shared;
  readonly #named: (id: string, self: Conversation) => void;
  readonly #outbox = new Outbox();
  #id: string | null;
  #view: View | null = null;
  #follower: Follower | null = null;
  #unwatch: () => void = () => {};
  #isLoadingOlder = false;
  #toolOutputs: ToolOutputs = {};
  /** Events that wait until what was written before them is read. */
  #later: OutlastEvent[] | null = null;
  #error: OutlastError | null = null;

  /** Use `OutlastClient.conversation` or `newConversation`. */
  constructor(
    client: OutlastClient,
    shared: Shared,
    id: string | null,
    named: (id: string, self: Conversation) => void,
  ) {
    super(shared.schedule);
    this.#client = client;
    this.#shared = shared;
    this.#id = id;
    this.#named = named;
    this.initialSnapshot();
  }

  get id(): string | null {
    return this.#id;
  }

  // Actions

  /**
   * Sends a message. It is in `pending` at once, and leaves it when it is in the view. Resolves when it is saved.
   * If it fails it stays as `failed`: see `resend` and `discard`.
   */
  send(content: Content, options: SendOptions = {}): Promise<api.StartedGeneration> {
    return this.#deliver(this.#outbox.add(content, options, this.#view?.lastSeq ?? 0));
  }

  /** Sends a failed message again under the same request id. If it did arrive, there is no duplicate. */
  async resend(requestId: string, options: SendOptions = {}): Promise<api.StartedGeneration> {
    return this.#deliver(this.#outbox.again(requestId, options));
  }

  /** Removes a failed message. */
  discard(requestId: string): void {
    this.#outbox.discard(requestId);
    this.changed();
  }

  /** Stops the current generation, or the given one, even if its message is still being sent. */
  async cancel(generationId?: string): Promise<api.Outcome> {
    const known = (): string | null | undefined =>
      generationId ?? this.#running ?? this.#pending.at(-1)?.generationId;
    if (!known()) await this.#outbox.newest?.catch(() => {});
    return this.#act(known(), (id) => this.#client.cancelGeneration(id));
  }

  /** Continues an interrupted generation. */
  resume(): Promise<api.Outcome> {
    return this.#act(this.#running, (id) => this.#client.resumeGeneration(id));
  }

  /** Ends an interrupted generation and keeps the text so far. */
  dismiss(): Promise<api.Outcome> {
    return this.#act(this.#running, (id) => this.#client.dismissGeneration(id));
  }

  /** Answers the last message again after a failure or a cancel: from the start, or from where it stopped. */
  retry(mode: RetryMode = "retry"): Promise<api.StartedGeneration> {
    const requestId = randomId();
    const last = this.#view?.conversation.currentGenerationId;
    return this.#act(last, (id) => this.#client.retryGeneration(id, { mode, requestId }));
  }

  /**
   * Decides about a tool call. Pass the question that was shown, not the current one: if it has changed since,
   * this fails with `approval_changed` and nothing is decided.
   */
  submitApproval(shown: Question | null, approval: Omit<api.Approval, "hash">): Promise<api.Outcome> {
    const { toolUseId = "", hash } = shown ?? {};
    return this.#act(shown && this.#running, (id) =>
      this.#client.submitApproval(id, toolUseId, { ...approval, hash }),
    );
  }

  /** Null clears the title. */
  rename(title: string | null): Promise<unknown> {
    return this.#act(this.#id, (id) => this.#client.updateConversation(id, { title }));
  }

  remove(): Promise<void> {
    return this.#act(this.#id, (id) => this.#client.deleteConversation(id));
  }

  /** Loads older messages into the view. Resolves at once if there are none. */
  async loadOlder(limit = 100): Promise<void> {
    const first = this.#view?.messages[0];
    if (first === undefined || !this.#view?.hasMore || this.#isLoadingOlder) return;
    this.#isLoadingOlder = true;
    try {
      const page = await this.#act(this.#id, (id) =>
        this.#client.getMessages(id, { before: first.seq, limit }),
      );
      const view: View | null = this.#view;
      // A snapshot that arrived meanwhile starts elsewhere, so the page does not fit in front of it.
      if (view?.messages[0]?.id !== first.id) return;
      this.#view = { ...view, messages: [...page.data, ...view.messages], hasMore: page.hasMore };
    } finally {
      this.#isLoadingOlder = false;
      this.publish();
    }
  }

  /** Connects again, even after a refusal: with a new token, for example. */
  reconnect(): void {
    this.#follower?.restart();
    if (this.isWatched) this.wake();
  }

  /** Closes the connection. The next `subscribe` or `reconnect` continues where it was. */
  close(): void {
    this.rest();
  }

  // The store

  protected render(): ConversationSnapshot {
    const view = this.#view;
    const pending = this.#pending;
    const run = view?.activeRun?.status;
    return {
      id: this.#id,
      view,
      pending,
      connection: this.#follower?.connection ?? { type: "idle" },
      generation: view && generationOf(view),
      isGenerating:
        run === "running" || run === "queued" || pending.some(({ status }) => status !== "failed"),
      lastEnd: view && view.lastEnd,
      isLoadingOlder: this.#isLoadingOlder,
      toolOutputs: this.#toolOutputs,
      error: this.#error ?? pending.at(-1)?.error ?? null,
    };
  }

  get #running(): string | undefined {
    return this.#view?.activeRun?.generationId;
  }

  get #pending(): readonly PendingMessage[] {
    return this.#outbox.beside(this.#view);
  }

  protected wake(): void {
    if (this.#id === null || this.#follower !== null) return;
    const { news, environment, positions, transport } = this.#shared;
    const unlisten = news.listen((news) => this.#hear(news));
    const unwatch = environment.watch((what) => what === "hidden" && positions.flush());
    this.#unwatch = () => (unlisten(), unwatch());
    // Read now, so that a reconnect does not have to wait for it.
    this.#client.capabilities().catch(() => {});
    this.#follower = new Follower({
      transport,
      path: pathOf("conversations", this.#id),
      isDense: true,
      after: this.#view?.lastSeq ?? null,
      environment,
      isExact: async () => (await this.#client.capabilities()).durability === "commit",
      isBusy: () => this.#view !== null && isUnderWay(this.#view.conversation.generationStatus),
      onEvents: (events) => this.#take(events),
      onConnection: (connection) => {
        // A deleted conversation must not be reopened after a reload.
        if (connection.type === "ended" && connection.error?.status === 404) positions.forget(this.#id);
        this.changed();
      },
    });
    this.changed();
  }

  protected rest(): void {
    this.#follower?.stop();
    this.#follower = null;
    this.#unwatch();
    this.#shared.positions.flush();
    if (this.#id !== null) this.#named(this.#id, this);
    this.changed();
  }

  // Events

  #take(events: readonly OutlastEvent[]): void {
    // The first event of a first connection is a snapshot, which replaces the empty view.
    const view = applyAll(this.#view ?? emptyView("", ""), events);
    this.#view = view;
    this.#outbox.settle(events, view);
    this.#hearTools(events, view);
    const { id: conversationId, currentGenerationId: generationId } = view.conversation;
    this.#shared.positions.note({ conversationId, generationId, seq: view.lastSeq });
    // Text does not change the list.
    if (events.some(({ type }) => !type.endsWith(".delta")))
      this.#shared.news.tell({ type: "seen", conversation: view.conversation });
    this.changed();
  }

  #hearTools(events: readonly OutlastEvent[], view: View): void {
    if (events.some(({ type }) => type === "snapshot")) {
      const later: OutlastEvent[] = [];
      this.#toolOutputs = {};
      this.#later = later;
      void this.#writtenBefore(view).then((before) => {
        // Another snapshot may have arrived meanwhile.
        if (this.#later !== later) return;
        this.#later = null;
        this.#toolOutputs = collect(this.#toolOutputs, [...before, ...later]);
        this.changed();
      });
    } else if (this.#later) this.#later.push(...events);
    else this.#toolOutputs = collect(this.#toolOutputs, events);
  }

  /** What tools that still run had written up to a snapshot. */
  async #writtenBefore(view: View): Promise<readonly OutlastEvent[]> {
    const events: OutlastEvent[] = [];
    const first = firstOpenCall(view);
    try {
      for (let after = first?.seq; after && after < view.lastSeq; after = events.at(-1)?.seq) {
        const { data } = await this.#client.getGenerationEvents(view.activeRun?.generationId ?? "", {
          after,
        });
        if (!data.length) break;
        events.push(...data);
      }
    } catch {
      // Without it, the output starts where the page was opened; the tool's result has all of it.
    }
    return events.filter(({ seq }) => seq <= view.lastSeq);
  }

  #hear(news: News): void {
    if (news.type === "seen" || news.type === "notified") return;
    if (news.type === "deleted") this.#shared.positions.forget(news.conversationId);
    if (news.conversationId !== this.#id) return;
    if (news.type === "changed") this.#follower?.wake();
    // It was deleted: the server refuses the new connection, which ends it with that reason.
    else this.#follower?.restart();
  }

  #deliver(message: PendingMessage): Promise<api.StartedGeneration> {
    const { content, requestId, options } = message;
    return this.#try(() =>
      this.#outbox.deliver(message, async () => {
        const conversationId = this.#id ?? undefined;
        const start = { ...options, conversationId, content, requestId };
        const started = await this.#client.startGeneration(start);
        this.#exists(started.conversationId);
        return started;
      }),
    );
  }

  /** The first message has created it. */
  #exists(id: string): void {
    if (this.#id !== null) return;
    this.#id = id;
    this.#named(id, this);
    if (this.isWatched) this.wake();
  }

  #act<Result>(id: string | null | undefined, action: (id: string) => Promise<Result>): Promise<Result> {
    return this.#try(async () => {
      try {
        if (typeof id === "string") return await action(id);
        throw nothingThere();
      } catch (error) {
        // An aborted call is not an error to show.
        if (error instanceof OutlastError) this.#error = error;
        throw error;
      }
    });
  }

  /** Publishes before and after, so that a caller who awaits the action finds its result in the snapshot. */
  async #try<Result>(action: () => Promise<Result>): Promise<Result> {
    this.#error = null;
    this.publish();
    try {
      return await action();
    } finally {
      this.publish();
    }
  }
}
