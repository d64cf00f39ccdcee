/** A tool call: its name, and folded below it, its input and result. */

import type { Part, ToolResultPart } from "@outlast/client";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Revealed } from "../markdown/revealed";
import { Icon } from "../shell/icon";
import { pretty } from "../shell/pretty";

export function ToolCard({ parts }: { readonly parts: readonly Part[] }): ReactNode {
  return parts.map((part, place) => {
    if (part.type !== "tool_use") return null;
    const result = parts.find((other) => other.type === "tool_result" && other.toolUseId === part.id);
    const finished = result?.type === "tool_result" ? result : null;
    return <ToolUse key={place} name={part.name} input={part.input} result={finished} />;
  });
}

export interface ToolUseProps {
  readonly name: string;
  readonly input: unknown;
  /** Null until the tool has finished. */
  readonly result?: ToolResultPart | null;
  /** Whether a person is asked to approve it: then it is open, and invisible characters are shown. */
  readonly isQuestion?: boolean;
  /** The buttons of a question. */
  readonly children?: ReactNode;
}

export function ToolUse({
  name,
  input,
  result = null,
  isQuestion = false,
  children,
}: ToolUseProps): ReactNode {
  return (
    <div className="tool-card">
      <details open={isQuestion}>
        <summary>
          <Icon name="tool" />
          <bdi className="tool-name">{isQuestion ? <Revealed text={name} /> : revealBidi(name)}</bdi>
          {result !== null && <span className="tool-state">{result.isError ? "failed" : "done"}</span>}
          <Icon name="chevron" />
        </summary>
        <pre tabIndex={0} aria-label="Tool input">
          {isQuestion ? <Revealed text={pretty(input)} /> : revealBidi(pretty(input))}
        </pre>
        {result !== null && (
          <pre tabIndex={0} aria-label="Tool result">
            {revealBidi(pretty(result.content))}
          </pre>
        )}
      </details>
      {children}
    </div>
  );
}
