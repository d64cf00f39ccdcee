/** A call of a tool: what it is called, and folded, what it was given and what it answered. */

import type { Part, ToolResultPart } from "@outlast/client";
import type { ReactNode } from "react";
import { showTurns } from "../markdown/bidi";
import { Icon } from "../shell/icon";
import { pretty } from "../shell/pretty";

export function ToolCard({ parts }: { readonly parts: readonly Part[] }): ReactNode {
  return parts.map((part, place) => {
    if (part.type !== "tool_use") return null;
    const result = parts.find((other) => other.type === "tool_result" && other.toolUseId === part.id);
    const answered = result?.type === "tool_result" ? result : null;
    return <ToolUse key={place} name={part.name} input={part.input} result={answered} />;
  });
}

export interface ToolUseProps {
  readonly name: string;
  readonly input: unknown;
  /** Null until it has answered. */
  readonly result?: ToolResultPart | null;
  /** Whether it is unfolded at first: who decides must have read it. */
  readonly isOpen?: boolean;
  /** What can be done about it: the place for a decision. */
  readonly children?: ReactNode;
}

export function ToolUse({ name, input, result = null, isOpen = false, children }: ToolUseProps): ReactNode {
  return (
    <div className="tool-card">
      <details open={isOpen}>
        <summary>
          <Icon name="tool" />
          <bdi className="tool-name">{showTurns(name)}</bdi>
          {result !== null && <span className="tool-state">{result.isError ? "failed" : "done"}</span>}
          <Icon name="chevron" />
        </summary>
        <pre tabIndex={0} aria-label="What the tool was given">
          {showTurns(pretty(input))}
        </pre>
        {result !== null && (
          <pre tabIndex={0} aria-label="What the tool answered">
            {showTurns(pretty(result.content))}
          </pre>
        )}
      </details>
      {children}
    </div>
  );
}
