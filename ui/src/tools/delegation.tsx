/** The sub-agent that does a call: its working memory as it changes, and the way to it. */

import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Link } from "../shell/link";
import type { ToolCall } from "./tool-call";

export function Delegation({ call: { delegation, result } }: { readonly call: ToolCall }): ReactNode {
  const childId = delegation?.conversationId ?? result?.conversationId;
  if (childId == null) return null;
  const { plan = [], openTasks = [], files = [], errors = [] } = delegation?.state ?? {};
  const memory = { Plan: plan, "Open tasks": openTasks, Files: files, Errors: errors };
  return (
    <div className="delegation">
      {Object.entries(memory).map(
        ([name, items]) =>
          items.length > 0 && (
            <div key={name}>
              {name}
              <ul>
                {items.map((item, place) => (
                  <li key={place}>{revealBidi(item)}</li>
                ))}
              </ul>
            </div>
          ),
      )}
      <Link to={{ type: "conversation", id: childId }}>Open the sub-agent</Link>
    </div>
  );
}
