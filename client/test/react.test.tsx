// @vitest-environment happy-dom
import { act, StrictMode } from "react";
import type { ReactNode } from "react";
import { createRoot, hydrateRoot } from "react-dom/client";
import type { Root } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { applyAll } from "../src/fold.js";
import { textOf } from "../src/index.js";
import type { OutlastEvent } from "../src/index.js";
import {
  OutlastProvider,
  useCapabilities,
  useConversation,
  useConversations,
  useGeneration,
} from "../src/react/index.js";
import type { UseConversation, UseGeneration } from "../src/react/index.js";
import { RELEASE_GRACE_MS } from "../src/store.js";
import { answering, exchange, scene, settled, started, VIEW } from "./fakes.js";
import type { Scene } from "./fakes.js";

let root: Root | null = null;
beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  vi.useFakeTimers();
});
afterEach(() => {
  act(() => root?.unmount());
  root = null;
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

async function show(stage: Scene, children: ReactNode): Promise<HTMLElement> {
  const place = document.createElement("div");
  root = createRoot(place);
  await act(async () =>
    root!.render(
      <StrictMode>
        <OutlastProvider client={stage.client}>{children}</OutlastProvider>
      </StrictMode>,
    ),
  );
  return place;
}

let now: UseConversation;
function Chat({ id }: { id: string | null }): ReactNode {
  now = useConversation(id);
  const { view, pending, connection } = now;
  return (
    <ul title={connection.type}>
      {view?.messages.map((message) => (
        <li key={message.id}>{textOf(view, message)}</li>
      ))}
      {pending.map((message) => (
        <li key={message.requestId}>{String(message.content)}…</li>
      ))}
    </ul>
  );
}

const lines = (place: HTMLElement): (string | null)[] =>
  [...place.querySelectorAll("li")].map((line) => line.textContent);

describe("a component", () => {
  it("follows a conversation over one connection, even in strict mode", async () => {
    const stage = scene();
    const place = await show(stage, <Chat id="conv_1" />);
    expect(stage.transport.lines).toHaveLength(1);
    await act(async () => stage.transport.show(VIEW));
    await act(async () => stage.transport.say(...exchange(1, "a", "hello", ["one ", "two"]).slice(0, 6)));
    expect(lines(place)).toEqual(["hello", "one two"]);
    await act(async () => vi.advanceTimersByTime(RELEASE_GRACE_MS * 2));
    expect(stage.transport.openLines).toBe(1);
  });

  it("shows what it sends at once, without duplicates", async () => {
    const stage = scene(({ body }) => started(body["requestId"]));
    const place = await show(stage, <Chat id="conv_1" />);
    await act(async () => stage.transport.show(VIEW));
    await act(async () => void now.send("hello"));
    expect(lines(place)).toEqual(["hello…"]);
    await act(async () => stage.transport.say(...exchange(1, now.pending[0]!.requestId, "hello", ["hi"])));
    expect(lines(place)).toEqual(["hello", "hi"]);
  });

  it("closes the connection when it unmounts, and finds everything again when it mounts", async () => {
    const stage = scene();
    await show(stage, <Chat id="conv_1" />);
    await act(async () => stage.transport.show(applyAll(VIEW, exchange(1, "a", "hello", ["hi"]))));
    act(() => root!.unmount());
    vi.advanceTimersByTime(RELEASE_GRACE_MS);
    expect(stage.transport.openLines).toBe(0);
    const place = await show(stage, <Chat id="conv_1" />);
    expect(lines(place)).toEqual(["hello", "hi"]);
    expect(stage.transport.last.target.after).toBe(7);
  });

  it("starts a new conversation, and continues with it when it gets its id", async () => {
    const stage = scene(({ body }) => started(body["requestId"]));
    const place = await show(stage, <Chat id={null} />);
    expect(stage.transport.lines).toHaveLength(0);
    const { conversation } = now;
    await act(async () => void (await now.send("hello")));
    expect(now.id).toBe("conv_1");
    await act(async () =>
      root!.render(
        <StrictMode>
          <OutlastProvider client={stage.client}>
            <Chat id={now.id} />
          </OutlastProvider>
        </StrictMode>,
      ),
    );
    expect(now.conversation).toBe(conversation);
    expect(stage.transport.lines).toHaveLength(1);
    expect(lines(place)).toEqual(["hello…"]);
    await act(async () =>
      root!.render(
        <StrictMode>
          <OutlastProvider client={stage.client}>
            <Chat id={null} />
          </OutlastProvider>
        </StrictMode>,
      ),
    );
    expect([now.id, lines(place)]).toEqual([null, []]);
  });

  it("changes from one conversation to another", async () => {
    const stage = scene();
    await show(stage, <Chat id="conv_1" />);
    await act(async () =>
      root!.render(
        <StrictMode>
          <OutlastProvider client={stage.client}>
            <Chat id="conv_2" />
          </OutlastProvider>
        </StrictMode>,
      ),
    );
    await act(async () => vi.advanceTimersByTime(RELEASE_GRACE_MS));
    expect(stage.transport.openLines).toBe(1);
    expect(stage.transport.last.target.path).toBe("/v1/conversations/conv_2");
  });

  it("keeps the same functions from one render to the next", async () => {
    const stage = scene();
    await show(stage, <Chat id="conv_1" />);
    const { send, cancel } = now;
    await act(async () => stage.transport.show(VIEW));
    expect([now.send, now.cancel]).toEqual([send, cancel]);
    expect(now.send).toBe(send);
  });

  it("can follow only the generation", async () => {
    let generation!: UseGeneration;
    function Status(): ReactNode {
      generation = useGeneration("conv_1");
      return generation.generation?.status;
    }
    const stage = scene(() => ({ success: true, status: "cancelled" }));
    await show(stage, <Status />);
    expect(generation).toMatchObject({
      generation: null,
      isGenerating: false,
      isPaused: false,
      pendingApproval: null,
    });
    await act(async () => stage.transport.show(VIEW));
    const events = exchange(1, "a", "hello", ["one ", "two"]);
    await act(async () => stage.transport.say(...events.slice(0, 6)));
    expect(generation).toMatchObject({
      isGenerating: true,
      connection: { type: "live" },
      generation: { id: "gen_of_a", status: "running", contentParts: [{ type: "text", text: "one two" }] },
    });
    await act(async () => expect(await generation.cancelGeneration()).toBeUndefined());
    await act(async () => stage.transport.say(...events.slice(6)));
    expect(generation).toMatchObject({
      isGenerating: false,
      generation: { status: "completed", endReason: "stop" },
    });
  });

  it("i8_decides_about_the_question_that_it_showed", async () => {
    let generation!: UseGeneration;
    function Status(): ReactNode {
      generation = useGeneration("conv_1");
      return generation.pendingApproval?.toolUseId;
    }
    const decided: unknown[] = [];
    const stage = scene(
      ({ path, body }) => (decided.push([path, body]), { success: true, status: "running" }),
    );
    await show(stage, <Status />);
    const [added, queued, begun] = exchange(1, "a", "hello", []);
    const event = (seq: number, type: string, toolUseId: string): OutlastEvent => {
      const payload = { toolUseId, toolName: "bash", toolInput: {}, hash: `hash of ${toolUseId}` };
      return { ...begun!, seq, type, payload } as OutlastEvent;
    };
    await act(async () => stage.transport.show(applyAll(VIEW, [added!, queued!, begun!])));
    await act(async () => stage.transport.say(event(4, "approval.requested", "call_1")));
    const shown = generation;
    await act(async () =>
      stage.transport.say(event(5, "approval.requested", "call_2"), event(6, "approval.resolved", "call_1")),
    );
    expect(generation.pendingApproval?.toolUseId).toBe("call_2");
    await act(() => shown.submitApproval("approve"));
    expect(decided).toEqual([
      ["/v1/generations/gen_of_a/approvals/call_1", { decision: "approve", hash: "hash of call_1" }],
    ]);
  });

  it("b9_can_show_what_the_server_offers, once it is known", async () => {
    let isUp = false;
    function Offer(): ReactNode {
      const offered = useCapabilities();
      return <li>{offered === null ? "unknown" : offered.background ? "background" : "foreground"}</li>;
    }
    const fetch = answering(() => {
      if (!isUp) throw new TypeError("fetch failed");
      return { name: "outlast", version: "9" };
    });
    const stage = scene(undefined, { fetch });
    const place = await show(stage, <Offer />);
    await act(() => vi.advanceTimersByTimeAsync(60_000));
    expect(lines(place)).toEqual(["unknown"]);
    isUp = true;
    await act(async () => {
      stage.device.become("online");
      await settled();
    });
    expect(lines(place)).toEqual(["foreground"]);
  });

  it("can show the list", async () => {
    function List(): ReactNode {
      const { conversations, isLoading } = useConversations();
      return isLoading ? "loading" : conversations.map(({ id }) => <li key={id}>{id}</li>);
    }
    const place = await show(
      scene(() => ({ data: [VIEW.conversation], nextCursor: null })),
      <List />,
    );
    await act(settled);
    expect(lines(place)).toEqual(["conv_1"]);
  });

  it("is rendered on a server without a connection, and hydrated", async () => {
    const stage = scene();
    const app = (
      <OutlastProvider client={stage.client}>
        <Chat id="conv_1" />
      </OutlastProvider>
    );
    const html = renderToString(app);
    expect(html).toBe('<ul title="idle"></ul>');
    expect(stage.transport.lines).toHaveLength(0);
    const place = document.createElement("div");
    place.innerHTML = html;
    const errors = vi.spyOn(console, "error").mockImplementation(() => {});
    await act(async () => void (root = hydrateRoot(place, app)));
    expect(errors).not.toHaveBeenCalled();
    expect(place.querySelector("ul")?.title).toBe("connecting");
  });

  it("without a provider says what is missing", () => {
    expect(() => renderToString(<Chat id="conv_1" />)).toThrow("must be used inside <OutlastProvider");
  });
});
