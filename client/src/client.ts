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
  listConversations({ metadata, ...options }: api.ListConversations = {}): Promise<api.ConversationPage> {
    const fields = Object.entries(metadata ?? {}).map(([field, value]) => [`metadata[${field}]`, value]);
    return this.#get("/v1/conversations", { ...options, ...Object.fromEntries(fields) });
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

  // Files and tools

  /** The workspace as of its newest checkpoint, in the order of paths. */
  listFiles(id: string, options?: api.ListFiles): Promise<api.FilePage> {
    return this.#get(pathOf("conversations", id, "files"), options);
  }

  /** A file's content; read it with `blob()`, `text()` or `body`. */
  getFile(
    id: string,
    path: string,
    options?: api.CallOptions & { readonly checkpoint?: string },
  ): Promise<Response> {
    return this.#download(filePath(id, path), options);
  }

  /** Puts a file into the workspace. Resolves when it is saved; refused while a tool runs. */
  async putFile(
    id: string,
    path: string,
    content: BodyInit,
    { signal }: api.CallOptions = {},
  ): Promise<api.PutFile> {
    const options = { raw: content, signal };
    return (await this.#shared.http.send("PUT", filePath(id, path), options, "application/json")).json();
  }

  /** Takes a file out of the workspace. Refused while a tool runs. */
  async deleteFile(id: string, path: string, { signal }: api.CallOptions = {}): Promise<void> {
    await this.#shared.http.send("DELETE", filePath(id, path), { signal }, "*/*");
  }

  /** A unified diff since the state before a generation; without one, every file is new. */
  async getDiff(id: string, options?: api.CallOptions & { readonly since?: string }): Promise<string> {
    return (await this.#download(pathOf("conversations", id, "diff"), options)).text();
  }

  /** The whole output of a tool call. */
  getToolOutput(
    generationId: string,
    toolUseId: string,
    options?: api.CallOptions & { readonly stream?: "stdout" | "stderr"; readonly offset?: number },
  ): Promise<Response> {
    return this.#download(pathOf("generations", generationId, "tools", toolUseId, "output"), options);
  }

  listTools(options?: api.CallOptions): Promise<api.ToolList> {
    return this.#get("/v1/tools", options);
  }

  // The server

  async listModels(options?: api.CallOptions): Promise<readonly api.Model[]> {
    return (await this.#get<{ data: readonly api.Model[] }>("/v1/models", options)).data;
  }

  /** What runs, waits and fails, of all users. Needs the scope `admin`. */
  overview(options?: api.CallOptions): Promise<api.Overview> {
    return this.#get("/v1/admin/overview", options);
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

  /** Exchanges a key for a session cookie, so that a page need not keep the key. Load the page again after it. */
  async logIn(key: string, { signal }: api.CallOptions = {}): Promise<void> {
    await this.#post("/v1/session", { key }, signal);
  }

  /** Ends the session. Load the page again after it. */
  async logOut({ signal }: api.CallOptions = {}): Promise<void> {
    await this.#shared.http.request("DELETE", "/v1/session", { signal });
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

  #download(path: string, { signal, ...query }: api.CallOptions = {}): Promise<Response> {
    return this.#shared.http.send("GET", path, { query, signal }, "*/*");
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

function filePath(id: string, path: string): string {
  return pathOf("conversations", id, "files", ...path.split("/"));
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
