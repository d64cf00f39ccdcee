/** A tool call as it stands: what it is about, and how far it has got. */

import type { ActiveRun, GenerationEnd, Message, ToolResultPart, ToolUsePart } from "@outlast/client";

export type ToolState =
  | "asked"
  | "queued"
  | "running"
  | "interrupted"
  | "done"
  | "failed"
  | "denied"
  | "unknown"
  | "stopped"
  | "open";

export interface ToolCall {
  readonly generationId: string | null;
  readonly use: ToolUsePart;
  /** Null until it has ended. */
  readonly result: ToolResultPart | null;
  readonly state: ToolState;
  /** Since when it runs, if the server runs it. */
  readonly since: string | null;
  /** What is known of the sub-agent that does it, while it does. */
  readonly delegation: Delegation | null;
}

type Delegation = NonNullable<ActiveRun["delegations"]>[number];

/** What is going on in a conversation, and how the last generation ended. */
export interface Going {
  readonly activeRun: ActiveRun | null;
  readonly lastEnd: GenerationEnd | null;
}

export const NOTHING_GOING: Going = { activeRun: null, lastEnd: null };

/** The call that a message is about; null for a message without one. */
export function callIn({ parts, generationId }: Message, { activeRun, lastEnd }: Going): ToolCall | null {
  const use = parts.find((part) => part.type === "tool_use");
  if (use === undefined) return null;
  const result = parts.find((part) => part.type === "tool_result") ?? null;
  const run = activeRun?.generationId === generationId ? activeRun : null;
  const running = run?.runningTools?.find(({ toolUseId }) => toolUseId === use.id);
  const isCut = lastEnd?.generationId === generationId && lastEnd.status !== "completed";
  const open = (): ToolState => (run === null ? (isCut ? "stopped" : "open") : openState(use, run));
  const state = result === null ? open() : endState(result);
  const delegation = run?.delegations?.find(({ toolUseId }) => toolUseId === use.id) ?? null;
  return { generationId, use, result, state, since: running?.startedAt ?? null, delegation };
}

function openState({ id }: ToolUsePart, run: ActiveRun): ToolState {
  if (run.pendingApprovals?.some(({ toolUseId }) => toolUseId === id)) return "asked";
  const child = run.delegations?.find(({ toolUseId }) => toolUseId === id)?.state;
  if (child?.approvals?.length) return "asked";
  if (child?.status === "interrupted") return "interrupted";
  if (run.runningTools?.some(({ toolUseId }) => toolUseId === id)) return "running";
  // Rounds are counted where the server runs the tools. A worker does not tell when one begins.
  return run.round === undefined && run.status === "running" ? "running" : "queued";
}

function endState({ isError, outcome, exitCode, durationMs }: ToolResultPart): ToolState {
  if (outcome === "denied" || outcome === "unknown") return outcome;
  if (!isError) return "done";
  // A program that ran and has no exit code was stopped.
  return durationMs != null && exitCode == null ? "stopped" : "failed";
}

/** The argument that says most about a call, by tool. */
const SUBJECTS: Readonly<Record<string, string>> = {
  bash: "command",
  read_file: "path",
  write_file: "path",
  edit_file: "path",
  list_files: "path",
  search_files: "pattern",
};

export interface Subject {
  readonly argument: string;
  readonly text: string;
}

/** What a call is about, at a glance; null if none of its arguments is text. */
export function subjectOf(name: string, input: unknown): Subject | null {
  if (typeof input !== "object" || input === null) return null;
  const fields = Object.entries(input).filter(
    (field): field is [string, string] => typeof field[1] === "string",
  );
  const [argument, text] = fields.find(([key]) => key === SUBJECTS[name]) ?? fields[0] ?? [];
  return argument === undefined || text === undefined ? null : { argument, text };
}

/** Whether a call runs a program, whose output is worth seeing. */
export function isProgram(name: string): boolean {
  return !(name in SUBJECTS) || name === "bash";
}
