/** What tools have written so far. It is not part of a view, because the transcript has a tool's result instead. */

import type { OutlastEvent } from "./event.js";
import type { View } from "./view.js";

/** What was written to one stream, without anything to the other in between. */
export interface OutputPiece {
  readonly stream: "stdout" | "stderr";
  readonly text: string;
}

/** By `toolUseId`, for tools that have no result. */
export type ToolOutputs = Readonly<Record<string, readonly OutputPiece[]>>;

/** Short enough that adding to it is cheap. */
const PIECE_LENGTH = 4_096;
/** Of one tool: about as much as a server records for one of its own. Earlier pieces are dropped. */
const PIECES_MAX = 100;

export function collect(outputs: ToolOutputs, events: readonly OutlastEvent[]): ToolOutputs {
  for (const { type, payload } of events) {
    if (type === "tool.output")
      outputs = { ...outputs, [payload.toolUseId]: add(outputs[payload.toolUseId] ?? [], payload) };
    // A result replaces what was written, and a tool that begins again writes again.
    else if (type === "tool.end" || type === "tool.began") outputs = without(outputs, payload.toolUseId);
    // What a cancelled tool wrote stays until the next answer.
    else if (type === "snapshot" || type === "generation.queued") outputs = {};
  }
  return outputs;
}

function add(pieces: readonly OutputPiece[], { stream, text }: OutputPiece): readonly OutputPiece[] {
  const last = pieces.at(-1);
  return last?.stream === stream && last.text.length < PIECE_LENGTH
    ? [...pieces.slice(0, -1), { stream, text: last.text + text }]
    : [...pieces.slice(1 - PIECES_MAX), { stream, text }];
}

function without(outputs: ToolOutputs, id: string): ToolOutputs {
  const { [id]: gone, ...rest } = outputs;
  return gone ? rest : outputs;
}

/** The first call of a running generation that has no result. What is written follows it in the log. */
export function firstOpenCall({ activeRun, messages }: View): { readonly seq: number } | undefined {
  return messages.find(
    ({ generationId, role, parts }) =>
      role === "tool" &&
      activeRun?.status === "running" &&
      activeRun.generationId === generationId &&
      !parts.some(({ type }) => type === "tool_result"),
  );
}
