/** The client: every call of the API, and the stores that follow conversations. */

import type * as api from "./api.js";
import { NOTHING_OFFERED, readCapabilities } from "./capabilities.js";
import { Conversation } from "./conversation.js";
import type { OutlastEvent } from "./event.js";
import { generationEvents } from "./generation-stream.js";
import type { SubscribeOptions } from "./generation-stream.js";
import type { ConversationDocument, Generation } from "./generation.js";
import { pathOf } from "./http.js";
import { share } from "./options.js";
import type { ClientOptions, Shared } from "./options.js";
import type { Position } from "./positions.js";
import { OutlastError } from "./problem.js";
import { randomId } from "./random-id.js";
import type { View } from "./view.js";

/** How many stores without listeners are kept in memory, so that going back shows a conversation at once. */
const KEPT_CONVERSATIONS = 12;

/** Gives the other entry points of this package access to a client's shared parts. */
export let sharedBy: (client: OutlastClient) => Shared;

export class OutlastClient {
  static {
    sharedBy = (client) => client.#shared;
  }

  readonly #shared: Shared;
  readonly #conversations = new Map<string, Conversation>();
  #capabilities: Promise<api.Capabilities> | null = null;

  constructor(options: ClientOptions = {}) {
    this.#shared = share(options);
  }

  // Generations

  /** Sends a message. Resolves when it is saved; from then on the server produces the answer. */
  startGeneration({ signal, ...start }: api.StartGeneration): Promise<api.StartedGeneration> {
    return this.#begin("/v1/generations", start, signal);
  }

  /** A generation's events up to its end, from the start or after a position. Survives lost connections. */
  subscribeGeneration(
    id: string,
    options: SubscribeOptions = {},
  ): AsyncGenerator<OutlastEvent, void, undefined> {
    return generationEvents(this.#shared, id, options);
  }

  /** Stops a generation. The text so far is kept. */
  cancelGeneration(id: string, options?: api.CallOptions): Promise<api.Outcome> {
    return this.#command(id, "cancel", options);
  }

  /** Continues an interrupted or paused generation. */
  resumeGeneration(id: string, options?: api.CallOptions): Promise<api.Outcome> {
    return this.#command(id, "resume", options);
  }

  /** Ends an interrupted generation and keeps the text so far. */
  dismissGeneration(id: string, options?: api.CallOptions): Promise<api.Outcome> {
    return this.#command(id, "dismiss", options);
  }

  /** Answers the same message again after a failure or a cancel: from the start, or from where it stopped. */
  retryGeneration(id: string, { signal, ...options }: api.RetryOptions = {}): Promise<api.StartedGeneration> {
    return this.#begin(pathOf("generations", id, "retry"), { mode: "retry", ...options }, signal);
  }

  /** Decides about a tool call. Pass the `hash` of the question that was shown. */
  submitApproval(id: string, toolUseId: string, approval: api.Approval): Promise<api.Outcome> {
    const { signal, ...body } = approval;
    return this.#post(pathOf("generations", id, "approvals", toolUseId), body, signal);
  }

  /** The whole state of a generation, for polling where streams do not work. */
  getGenerationStatus(id: string, options?: api.CallOptions): Promise<Generation> {
    return this.#get(pathOf("generations", id), options);
  }

  /** Newest first. */
  listGenerations(options?: api.ListGenerations): Promise<api.GenerationPage> {
    return this.#get("/v1/generations", options);
  }

  /** A page of a generation's events, for polling. */
  getGenerationEvents(id: string, options?: api.EventPageOptions): Promise<api.EventPage> {
    return this.#get(pathOf("generations", id, "events"), { ...options, format: "json" });
  }

  // Conversations

  async createConversation(options: api.CreateConversation = {}): Promise<ConversationDocument> {
    const { signal, ...body } = options;
    return this.#seen(await this.#make("/v1/conversations", body, signal));
  }

  /** Newest first. */
  listConversations(options?: api.PageOptions): Promise<api.ConversationPage> {
    return this.#get("/v1/conversations", options);
  }

  /** The view, with the newest messages. */
  getConversation(id: string, options?: api.CallOptions & { readonly limit?: number }): Promise<View> {
    return this.#get(pathOf("conversations", id), options);
  }

  /** Messages in ascending order. For older ones, pass the `seq` of the first message as `before`. */
  getMessages(id: string, options?: api.MessagePageOptions): Promise<api.MessagePage> {
    return this.#get(pathOf("conversations", id, "messages"), options);
  }

  async updateConversation(
    id: string,
    { signal, ...body }: api.ConversationChange,
  ): Promise<ConversationDocument> {
    return this.#seen(
      await this.#shared.http.request("PATCH", pathOf("conversations", id), { body, signal }),
    );
  }

  /** Deletes a conversation with everything in it, and stops a running generation. */
  async deleteConversation(id: string, { signal }: api.CallOptions = {}): Promise<void> {
    const doneBefore = ({ status }: OutlastError): unknown => (status === 404 ? {} : undefined);
    await this.#shared.http.request("DELETE", pathOf("conversations", id), { signal, doneBefore });
    this.#shared.positions.forget(id);
    this.#shared.news.tell({ type: "deleted", conversationId: id });
  }

  // The server

  async listModels(options?: api.CallOptions): Promise<readonly api.Model[]> {
    return (await this.#get<{ data: readonly api.Model[] }>("/v1/models", options)).data;
  }

  /**
   * What the server offers, read once. A server without this route is assumed to offer nothing: `background` is
   * false, and an interface should say that closing the page ends the answer.
   */
  capabilities(): Promise<api.Capabilities> {
    return (this.#capabilities ??= this.#readCapabilities());
  }

  async #readCapabilities(): Promise<api.Capabilities> {
    try {
      const offered = readCapabilities(await this.#get("/v1/capabilities"));
      this.#shared.positions.belongTo(offered.user);
      return offered;
    } catch (error) {
      if (error instanceof OutlastError && (error.status === 404 || error.code === "not_outlast"))
        return NOTHING_OFFERED;
      this.#capabilities = null;
      throw error;
    }
  }

  // Stores

  /** The store of a conversation. The same store for the same id, so that all watchers share one connection. */
  conversation(id: string): Conversation {
    const store = this.#conversations.get(id) ?? new Conversation(this, this.#shared, id, this.#adopt);
    // Moves it to the end of the kept stores. None is dropped here, because React subscribes only later.
    this.#conversations.delete(id);
    this.#conversations.set(id, store);
    return store;
  }

  /** A conversation that does not exist yet: the first message creates it, and sets `snapshot().id`. */
  newConversation(): Conversation {
    return new Conversation(this, this.#shared, null, this.#adopt);
  }

  /** The conversation that was open last, in this page or before it was loaded. */
  lastPosition(): Position | null {
    return this.#shared.positions.last;
  }

  /** Keeps a store that got its id or has no more listeners, and drops the least recently used ones. */
  readonly #adopt = (id: string, store: Conversation): void => {
    this.#conversations.set(id, store);
    const idle = [...this.#conversations].filter(
      ([, other]) => !other.isWatched && other.snapshot().pending.length === 0,
    );
    for (const [old] of idle.slice(0, -KEPT_CONVERSATIONS)) this.#conversations.delete(old);
  };

  #seen(document: ConversationDocument): ConversationDocument {
    this.#shared.news.tell({ type: "seen", conversation: document });
    return document;
  }

  #get<Body>(
    path: string,
    { signal, ...query }: api.CallOptions & { readonly format?: string } = {},
  ): Promise<Body> {
    return this.#shared.http.request("GET", path, { query, signal });
  }

  #post<Body>(path: string, body: object, signal: AbortSignal | undefined): Promise<Body> {
    return this.#shared.http.request("POST", path, { body, signal, doneBefore });
  }

  #make<Body>(path: string, body: Named, signal: AbortSignal | undefined): Promise<Body> {
    // Generated once, so that the server recognises a retry.
    return this.#post(path, { ...body, requestId: body.requestId ?? randomId() }, signal);
  }

  async #begin(path: string, body: Named, signal: AbortSignal | undefined): Promise<api.StartedGeneration> {
    const started = await this.#make<api.StartedGeneration>(path, body, signal);
    this.#shared.news.tell({ type: "changed", conversationId: started.conversationId });
    return started;
  }

  async #command(id: string, verb: string, { signal }: api.CallOptions = {}): Promise<api.Outcome> {
    const outcome = await this.#post<api.Outcome>(pathOf("generations", id, verb), {}, signal);
    this.#shared.news.tell({ type: "changed", conversationId: null });
    return outcome;
  }
}

interface Named {
  readonly requestId?: string | undefined;
}

/** If an attempt succeeded but its response was lost, the refusal of the next attempt tells the result. */
function doneBefore({ code, problem }: OutlastError, body?: object): api.Outcome | undefined {
  const isOurs = code === "already_decided" && problem.decision === (body as api.Approval).decision;
  if (!isOurs && code !== "already_ended" && code !== "not_interrupted") return undefined;
  return { success: isOurs, status: problem.statusWas ?? problem.statusIs ?? "running" };
}
