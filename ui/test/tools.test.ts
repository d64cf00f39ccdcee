import type { ActiveRun, Message, Part } from "@outlast/client";
import { describe, expect, it } from "vitest";
import { decisionOf } from "../src/tools/choice";
import { callIn, NOTHING_GOING, subjectOf } from "../src/tools/tool-call";
import { countTools, groupTools } from "../src/tools/tool-groups";
import { endOf } from "../src/tools/written";

const use = (id: string, name = "read_file"): Part => ({ type: "tool_use", id, name, input: { path: id } });
const result = (id: string, more: object = {}): Part => ({
  type: "tool_result",
  toolUseId: id,
  content: "",
  isError: false,
  ...more,
});

const message = (id: string, role: Message["role"], ...parts: readonly Part[]): Message => ({
  id,
  conversationId: "c",
  generationId: "g",
  role,
  content: "",
  parts,
  status: "complete",
  errorMessage: null,
  seq: 1,
  createdAt: "2026-01-01T00:00:00.000Z",
});

const RUN: ActiveRun = {
  generationId: "g",
  requestId: "r",
  status: "running",
  model: "m",
  attempt: 1,
  round: 1,
  startedAt: null,
  queued: 0,
};

describe("a tool call", () => {
  const stateOf = (
    parts: readonly Part[],
    run: Partial<ActiveRun> | null = null,
    end: string | null = null,
  ) =>
    callIn(message("m", "tool", ...parts), {
      activeRun: run && { ...RUN, ...run },
      lastEnd:
        end === null
          ? null
          : { generationId: "g", status: end as "cancelled", reason: null, errorMessage: null },
    })?.state;

  it("is in one state", () => {
    const asked = { toolUseId: "a", toolName: "bash", toolInput: {} };
    const running = { toolUseId: "a", executionId: "e", startedAt: "2026-01-01T00:00:00.000Z" };
    expect(stateOf([use("a")], { pendingApprovals: [asked] })).toBe("asked");
    expect(stateOf([use("a")], { runningTools: [running] })).toBe("running");
    const child = { generationId: "h", seq: 4, plan: [], openTasks: [], files: [], errors: [] };
    const question = { id: "q", conversationId: "d", generationId: "h", hash: "0" };
    const delegated = (state: object) => ({
      runningTools: [running],
      delegations: [{ toolUseId: "a", conversationId: "d", state: { ...child, ...state } }],
    });
    const asks = { status: "awaiting_approval", approvals: [{ ...question, ...asked }] };
    expect(stateOf([use("a")], delegated(asks) as object)).toBe("asked");
    expect(stateOf([use("a")], delegated({ status: "interrupted" }) as object)).toBe("interrupted");
    expect(stateOf([use("a")], delegated({ status: "running" }) as object)).toBe("running");
    expect(stateOf([use("a")], {})).toBe("queued");
    expect(stateOf([use("a")], null, "cancelled")).toBe("stopped");
    expect(stateOf([use("a")], null, "completed")).toBe("open");
    expect(stateOf([use("a"), result("a", { exitCode: 0, durationMs: 3 })])).toBe("done");
    expect(stateOf([use("a"), result("a", { isError: true, exitCode: 1, durationMs: 3 })])).toBe("failed");
    expect(stateOf([use("a"), result("a", { isError: true, durationMs: 3 })])).toBe("stopped");
    expect(stateOf([use("a"), result("a", { isError: true, outcome: "denied" })])).toBe("denied");
    expect(stateOf([use("a"), result("a", { isError: true, outcome: "unknown" })])).toBe("unknown");
    expect(stateOf([use("a"), result("a", { isError: true })])).toBe("failed");
    const { round: _, ...workers } = RUN;
    expect(callIn(message("m", "tool", use("a")), { activeRun: workers, lastEnd: null })?.state).toBe(
      "running",
    );
    expect(callIn(message("m", "tool"), NOTHING_GOING)).toBeNull();
  });

  it("is known by the argument that says most", () => {
    expect(subjectOf("bash", { timeout: 5, command: "ls" })).toEqual({ argument: "command", text: "ls" });
    expect(subjectOf("write_file", { content: "x", path: "a.rs" })?.text).toBe("a.rs");
    expect(subjectOf("custom", { count: 1, query: "tea" })).toEqual({ argument: "query", text: "tea" });
    for (const input of [null, "text", 3, [], { count: 1 }]) expect(subjectOf("custom", input)).toBeNull();
  });
});

describe("a decision", () => {
  const subject = { argument: "command", text: "ls -l" };
  const choice = { reach: "once", pattern: "ls*", reason: "  " } as const;
  it("says no more than the person chose", () => {
    expect(decisionOf("approve", choice, subject)).toEqual({ decision: "approve" });
    expect(decisionOf("deny", { ...choice, reason: " no " }, subject)).toEqual({
      decision: "deny",
      reason: "no",
    });
    expect(decisionOf("approve", { ...choice, reach: "tool" }, subject)).toEqual({
      decision: "approve",
      always: true,
    });
    expect(decisionOf("approve", { ...choice, reach: "pattern" }, subject)).toEqual({
      decision: "approve",
      always: true,
      pattern: { command: "ls*" },
    });
  });
});

describe("what a tool wrote", () => {
  it("is cut to the last whole lines that fit", () => {
    const pieces = [
      { stream: "stdout", text: "one\ntwo\n" },
      { stream: "stderr", text: "three\nfour\n" },
    ] as const;
    expect(endOf(pieces)).toEqual({ pieces, hidden: 0 });
    expect(endOf(pieces, 15)).toEqual({
      pieces: [
        { stream: "stdout", text: "two\n" },
        { stream: "stderr", text: "three\nfour\n" },
      ],
      hidden: 4,
    });
    expect(endOf([{ stream: "stdout", text: "x".repeat(50) }], 10)).toEqual({
      pieces: [{ stream: "stdout", text: "x".repeat(10) }],
      hidden: 40,
    });
  });
});

describe("tool calls in a row", () => {
  const done = (id: string, more: object = {}) => message(id, "tool", use(id), result(id, more));
  const shape = (messages: readonly Message[], running: string | null = null) =>
    groupTools(messages, running).map((shown) =>
      shown.type === "group" ? shown.messages.length : shown.message.id,
    );

  it("are one line if there are many and all went well", () => {
    const four = ["a", "b", "c", "d"].map((id) => done(id));
    expect(shape([...four, message("text", "assistant")])).toEqual([4, "text"]);
    expect(shape(four.slice(1))).toEqual(["b", "c", "d"]);
    expect(shape([...four, done("e", { isError: true }), ...four])).toEqual([4, "e", 4]);
    expect(countTools([...four, message("x", "tool", use("x", "bash"))])).toBe("read_file × 4, bash");
  });

  it("stay apart while more of them may follow", () => {
    const four = ["a", "b", "c", "d"].map((id) => done(id));
    expect(shape(four, "g")).toEqual(["a", "b", "c", "d"]);
    expect(shape(four, "other")).toEqual([4]);
    expect(shape([...four, message("run", "tool", use("run"))], "g")).toEqual([4, "run"]);
  });
});
