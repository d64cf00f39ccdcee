/** A tool call in the transcript: one line that says what it is about, and below it the arguments and the output. */

import type { OutputPiece } from "@outlast/client";
import { useMemo, useState } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Icon } from "../shell/icon";
import { pretty } from "../shell/pretty";
import { ToolArguments } from "./tool-arguments";
import { Delegation } from "./delegation";
import { isProgram, subjectOf } from "./tool-call";
import type { ToolCall } from "./tool-call";
import { ToolOutput } from "./tool-output";
import { ToolStateNote } from "./tool-state";

/** Of the line that says what a call is about. The style sheet cuts it to the width of the card. */
const SUBJECT_LENGTH = 200;

/** The server's line in place of the middle of a long output. */
const LEFT_OUT = /^\[\d+ bytes left out; /m;

export interface ToolCardProps {
  readonly call: ToolCall;
  /** What it has written so far, if it has no result. */
  readonly output: readonly OutputPiece[] | undefined;
}

export function ToolCard({ call, output }: ToolCardProps): ReactNode {
  const { use, state } = call;
  const [chosen, choose] = useState<boolean | null>(null);
  const isOpen = chosen ?? opensItself(call, output);
  const subject = subjectOf(use.name, use.input);
  return (
    <details className={`tool-card is-${state}`} open={isOpen}>
      <summary
        onClick={(event) => {
          event.preventDefault(); // it is open if this component says so
          choose(!isOpen);
        }}
      >
        <Icon name={isProgram(use.name) ? "tool" : "file"} />
        <bdi className="tool-name">{revealBidi(use.name)}</bdi>
        <bdi className="tool-subject">{revealBidi(firstLine(subject?.text ?? ""))}</bdi>
        <ToolStateNote call={call} />
        <Icon name="chevron" />
      </summary>
      {isOpen && <Body call={call} output={output} />}
    </details>
  );
}

/** Programs show their output, and so does everything that went wrong. A question has a card of its own. */
function opensItself(call: ToolCall, output: readonly OutputPiece[] | undefined): boolean {
  const { use, state, result, delegation } = call;
  if (state === "failed" || state === "denied" || state === "unknown" || delegation !== null) return true;
  return isProgram(use.name) && (output !== undefined || (result !== null && result.content !== ""));
}

function Body({ call, output }: ToolCardProps): ReactNode {
  const { generationId, use, result } = call;
  const text = result === null ? null : pretty(result.content);
  const pieces = useMemo(
    (): readonly OutputPiece[] => (text === null ? (output ?? []) : [{ stream: "stdout", text }]),
    [text, output],
  );
  const isShown = pieces.some((piece) => piece.text !== "");
  return (
    <div className="tool-body">
      {needsArguments(use.name, use.input) && <ToolArguments name={use.name} input={use.input} />}
      {isShown && <ToolOutput pieces={pieces} label={result === null ? "Tool output" : "Tool result"} />}
      {text !== null && generationId !== null && LEFT_OUT.test(text) && (
        <p className="tool-cut">
          <a href={outputHref(generationId, use.id)} download={`${use.id}.txt`}>
            Download the whole output
          </a>
        </p>
      )}
      <Delegation call={call} />
    </div>
  );
}

function outputHref(generationId: string, toolUseId: string): string {
  return `/v1/generations/${encodeURIComponent(generationId)}/tools/${encodeURIComponent(toolUseId)}/output`;
}

/** Whether the first line of the subject leaves anything out. */
function needsArguments(name: string, input: unknown): boolean {
  const subject = subjectOf(name, input);
  if (subject === null || firstLine(subject.text) !== subject.text) return true;
  return subject.text.length > 60 || Object.keys(input as object).length > 1;
}

function firstLine(text: string): string {
  return (text.trim().split("\n", 1)[0] ?? "").slice(0, SUBJECT_LENGTH);
}
