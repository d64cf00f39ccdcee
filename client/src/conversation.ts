/** A conversation to watch and to act on. */

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
import { emptyView } from "./view.js";
import type { GenerationEnd, View } from "./view.js";

export interface ConversationSnapshot {
  /** Null until the first message of a new conversation is saved. */
  readonly id: string | null;
  /** Null until it has been loaded. */
  readonly view: View | null;
  /** Messages that are on their way; show them after those of the view. */
  readonly pending: readonly PendingMessage[];
  readonly connection: Connection;
  /** The generation under way, or else the last one. */
  readonly generation: GenerationState | null;
  /** Whether an answer is on its way. False while it waits for a person. */
  readonly isGenerating: boolean;
  readonly lastEnd: GenerationEnd | null;
  readonly isLoadingOlder: boolean;
  /** Why the last thing that was tried here failed. The next try clears it; a message takes it along. */
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
  #error: OutlastError | null = null;

  /** Made by a client: see `OutlastClient.conversation` and `newConversation`. */
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

  // What a person does

  /**
   * Sends a message. It is shown at once as pending, and only once when it is saved. Resolves when it is
   * saved. If it fails it stays as `failed`: see `resend` and `discard`.
   */
  send(content: Content, options: SendOptions = {}): Promise<api.StartedGeneration> {
    return this.#deliver(this.#outbox.add(content, options, this.#view?.lastSeq ?? 0));
  }

  /** Sends a message again that failed, under the same name: if it did arrive, nothing is doubled. */
  async resend(requestId: string, options: SendOptions = {}): Promise<api.StartedGeneration> {
    return this.#deliver(this.#outbox.again(requestId, options));
  }

  /** Takes away a message that failed. */
  discard(requestId: string): void {
    this.#outbox.discard(requestId);
    this.changed();
  }

  /** Stops what is under way, or the generation that is named. Also one that is only being sent. */
  async cancel(generationId?: string): Promise<api.Outcome> {
    const known = (): string | null | undefined =>
      generationId ?? this.#running ?? this.#pending.at(-1)?.generationId;
    if (!known()) await this.#outbox.newest?.catch(() => {});
    return this.#act(known(), (id) => this.#client.cancelGeneration(id));
  }

  /** Lets an interrupted generation go on. */
  resume(): Promise<api.Outcome> {
    return this.#act(this.#running, (id) => this.#client.resumeGeneration(id));
  }

  /** Ends an interrupted generation as it stands. */
  dismiss(): Promise<api.Outcome> {
    return this.#act(this.#running, (id) => this.#client.dismissGeneration(id));
  }

  /** Answers the last message again after a failure or a cancel: from the start, or from where it broke. */
  retry(mode: RetryMode = "retry"): Promise<api.StartedGeneration> {
    const requestId = randomId();
    const last = this.#view?.conversation.currentGenerationId;
    return this.#act(last, (id) => this.#client.retryGeneration(id, { mode, requestId }));
  }

  /**
   * Decides about a tool call. Pass the question as it was shown, not as it stands now: if it has changed
   * since, this fails with `approval_changed` and nothing is decided.
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

  /** Puts older messages before those that are there. Resolves at once if there are none. */
  async loadOlder(limit = 100): Promise<void> {
    const first = this.#view?.messages[0];
    if (first === undefined || !this.#view?.hasMore || this.#isLoadingOlder) return;
    this.#isLoadingOlder = true;
    try {
      const page = await this.#act(this.#id, (id) =>
        this.#client.getMessages(id, { before: first.seq, limit }),
      );
      const view: View | null = this.#view;
      // A snapshot that came meanwhile begins elsewhere: the page does not fit before it.
      if (view?.messages[0]?.id !== first.id) return;
      this.#view = { ...view, messages: [...page.data, ...view.messages], hasMore: page.hasMore };
    } finally {
      this.#isLoadingOlder = false;
      this.publish();
    }
  }

  /** Connects anew, also after it ended: with a new token, for example. */
  reconnect(): void {
    this.#follower?.restart();
    if (this.isWatched) this.wake();
  }

  /** Lets go of the connection now. Who subscribes first after this, or says `reconnect`, goes on where it was. */
  close(): void {
    this.rest();
  }

  // How it is watched

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
    // Asked now, so that coming back after a loss does not have to wait for the answer.
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
        // What is gone is no place to come back to.
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

  // What happens

  #take(events: readonly OutlastEvent[]): void {
    // The first event of a first connection is a snapshot, which replaces whatever was there.
    const view = applyAll(this.#view ?? emptyView("", ""), events);
    this.#view = view;
    this.#outbox.settle(events, view);
    const { id: conversationId, currentGenerationId: generationId } = view.conversation;
    this.#shared.positions.note({ conversationId, generationId, seq: view.lastSeq });
    // Words are no news to a list.
    if (events.some(({ type }) => !type.endsWith(".delta")))
      this.#shared.news.tell({ type: "seen", conversation: view.conversation });
    this.changed();
  }

  #hear(news: News): void {
    if (news.type === "seen") return;
    if (news.type === "deleted") this.#shared.positions.forget(news.conversationId);
    if (news.conversationId !== this.#id) return;
    if (news.type === "changed") this.#follower?.wake();
    // The server says that it is gone, and the connection ends with that.
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

  /** The first message has made it. */
  #exists(id: string): void {
    if (this.#id !== null) return;
    this.#id = id;
    this.#named(id, this);
    if (this.isWatched) this.wake();
  }

  #act<Answer>(id: string | null | undefined, action: (id: string) => Promise<Answer>): Promise<Answer> {
    return this.#try(async () => {
      try {
        if (typeof id === "string") return await action(id);
        throw nothingThere();
      } catch (error) {
        // What somebody gave up is no error to show.
        if (error instanceof OutlastError) this.#error = error;
        throw error;
      }
    });
  }

  /** Tells listeners before and after, so that who awaits it sees what came of it. */
  async #try<Answer>(action: () => Promise<Answer>): Promise<Answer> {
    this.#error = null;
    this.publish();
    try {
      return await action();
    } finally {
      this.publish();
    }
  }
}
