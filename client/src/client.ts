/** The client: every call of the protocol, and the stores that follow conversations. */

import type * as api from "./api.js";
import { NOTHING_OFFERED, readCapabilities } from "./capabilities.js";
import { Conversation } from "./conversation.js";
import type { OutlastEvent } from "./event.js";
import { generationEvents } from "./generation-stream.js";
import type { SubscribeOptions } from "./generation-stream.js";
import type { ConversationDocument, Generation, GenerationStatus } from "./generation.js";
import { pathOf } from "./http.js";
import { share } from "./options.js";
import type { ClientOptions, Shared } from "./options.js";
import type { Position } from "./positions.js";
import { OutlastError } from "./problem.js";
import { randomId } from "./random-id.js";
import type { View } from "./view.js";

/** Conversations that nobody watches and that are kept all the same, so that going back shows them at once. */
const KEPT_CONVERSATIONS = 12;

/** For the other entries of this package: what the parts of a client share. */
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

  /** Sends a message. Resolves when it is saved; the answer is made by the server from then on. */
  startGeneration({ signal, ...start }: api.StartGeneration): Promise<api.StartedGeneration> {
    return this.#begin("/v1/generations", start, signal);
  }

  /**
   * A generation's events to its end, from the beginning or after a position. Comes back by itself where
   * it was when a connection is lost.
   */
  subscribeGeneration(
    id: string,
    options: SubscribeOptions = {},
  ): AsyncGenerator<OutlastEvent, void, undefined> {
    return generationEvents(this.#shared, id, options);
  }

  /** Stops it. What was said stays. */
  cancelGeneration(id: string, options?: api.CallOptions): Promise<api.Outcome> {
    return this.#command(id, "cancel", options);
  }

  /** Lets an interrupted or paused generation go on. */
  resumeGeneration(id: string, options?: api.CallOptions): Promise<api.Outcome> {
    return this.#command(id, "resume", options);
  }

  /** Ends an interrupted generation as it stands. */
  dismissGeneration(id: string, options?: api.CallOptions): Promise<api.Outcome> {
    return this.#command(id, "dismiss", options);
  }

  /** Answers the same message again after a failure or a cancel: from the start, or from where it broke. */
  retryGeneration(id: string, { signal, ...options }: api.RetryOptions = {}): Promise<api.StartedGeneration> {
    return this.#begin(pathOf("generations", id, "retry"), { mode: "retry", ...options }, signal);
  }

  /** Decides about a tool call that waits. Only servers that run tools know this. */
  submitApproval(id: string, toolUseId: string, approval: api.Approval): Promise<api.Outcome> {
    const { signal, ...body } = approval;
    return this.#post(pathOf("generations", id, "approvals", toolUseId), body, signal);
  }

  /** The whole state of a generation: for polling, where streams do not work. */
  getGenerationStatus(id: string, options?: api.CallOptions): Promise<Generation> {
    return this.#get(pathOf("generations", id), options);
  }

  /** Newest first. */
  listGenerations(options?: api.ListGenerations): Promise<api.GenerationPage> {
    return this.#get("/v1/generations", options);
  }

  /** A page of a generation's events: for polling. */
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

  /** The view, with its newest messages. */
  getConversation(id: string, options?: api.CallOptions & { readonly limit?: number }): Promise<View> {
    return this.#get(pathOf("conversations", id), options);
  }

  /** Messages in ascending order. For older ones pass the `seq` of the first as `before`. */
  getMessages(id: string, options?: api.MessagePageOptions): Promise<api.MessagePage> {
    return this.#get(pathOf("conversations", id, "messages"), options);
  }

  /** What is left out stays as it is. */
  async updateConversation(
    id: string,
    { signal, ...body }: api.ConversationChange,
  ): Promise<ConversationDocument> {
    return this.#seen(
      await this.#shared.http.request("PATCH", pathOf("conversations", id), { body, signal }),
    );
  }

  /** Everything in it is gone, and a generation under way is stopped. */
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
   * What the server offers. Asked once. A server that does not know the question is taken to offer
   * nothing: `background` is false, and an interface should say that leaving the page ends the answer.
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

  /** A conversation to watch. The same one for the same id, so that all who watch it share one connection. */
  conversation(id: string): Conversation {
    const store = this.#conversations.get(id) ?? new Conversation(this, this.#shared, id, this.#adopt);
    // To the end of those that are kept. None is let go of here: React asks first, and watches later.
    this.#conversations.delete(id);
    this.#conversations.set(id, store);
    return store;
  }

  /** One that does not exist yet: the first message makes it, and then `snapshot().id` is known. */
  newConversation(): Conversation {
    return new Conversation(this, this.#shared, null, this.#adopt);
  }

  /** Where this person was before the page was loaded, or is now. */
  lastPosition(): Position | null {
    return this.#shared.positions.last;
  }

  /** Keeps one that was given its id, or came to rest, and lets go of those that were not used for longest. */
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

  #get<Answer>(
    path: string,
    { signal, ...query }: api.CallOptions & { readonly format?: string } = {},
  ): Promise<Answer> {
    return this.#shared.http.request("GET", path, { query, signal });
  }

  #post<Answer>(path: string, body: object, signal: AbortSignal | undefined): Promise<Answer> {
    return this.#shared.http.request("POST", path, { body, signal, doneBefore });
  }

  #make<Answer>(path: string, body: Named, signal: AbortSignal | undefined): Promise<Answer> {
    // Made up once, so that a second try is known to be the same request.
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

/** The try whose answer was lost may have done it: then the refusal of the next one is the answer. */
function doneBefore({ code, problem }: OutlastError, body?: object): api.Outcome | undefined {
  const isOurs = code === "already_decided" && problem["decision"] === (body as api.Approval).decision;
  if (!isOurs && code !== "already_ended" && code !== "not_interrupted") return undefined;
  const status = problem["statusWas"] ?? problem["statusIs"] ?? "running";
  return { success: isOurs, status: status as GenerationStatus };
}
