/** A call of a tool: what it is called, and folded, what it was given. */

import type { Part } from "@outlast/client";
import type { ReactNode } from "react";
import { showTurns } from "../markdown/bidi";
import { Icon } from "../shell/icon";
import { pretty } from "../shell/pretty";

export function ToolCard({ parts }: { readonly parts: readonly Part[] }): ReactNode {
  return parts.map((part, place) =>
    part.type === "tool_use" ? <ToolUse key={place} name={part.name} input={part.input} /> : null,
  );
}

export interface ToolUseProps {
  readonly name: string;
  readonly input: unknown;
  /** What can be done about it: the place for a decision. */
  readonly children?: ReactNode;
}

export function ToolUse({ name, input, children }: ToolUseProps): ReactNode {
  return (
    <div className="tool-card">
      <details>
        <summary>
          <Icon name="tool" />
          <bdi className="tool-name">{showTurns(name)}</bdi>
          <Icon name="chevron" />
        </summary>
        <pre tabIndex={0} aria-label="What the tool was given">
          {showTurns(pretty(input))}
        </pre>
      </details>
      {children}
    </div>
  );
}
