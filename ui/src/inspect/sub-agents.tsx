/** The sub-agents of a generation, with the way to each. */

import type { OutlastEvent } from "@outlast/client";
import { useMemo } from "react";
import type { ReactNode } from "react";
import { Link } from "../shell/link";

type Changed = Extract<OutlastEvent, { readonly type: "delegation.changed" }>["payload"];

export interface SubAgentsProps {
  readonly events: readonly OutlastEvent[];
  /** How many of the events there are; the list grows in place. */
  readonly size: number;
}

export function SubAgents({ events, size }: SubAgentsProps): ReactNode {
  const newest = useMemo(() => newestOf(events.slice(0, size)), [events, size]);
  if (newest.length === 0) return null;
  return (
    <section className="sub-agents" aria-label="Sub-agents">
      <h2>Sub-agents</h2>
      <ul>
        {newest.map(({ toolUseId, conversationId, state }) => (
          <li key={toolUseId}>
            <Link to={{ type: "inspect", generationId: state.generationId }}>{toolUseId}</Link>
            <span className={`badge is-${state.status}`}>{state.status.replace("_", " ")}</span>
            <Link to={{ type: "conversation", id: conversationId }}>Conversation</Link>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What was last heard of each. */
function newestOf(events: readonly OutlastEvent[]): readonly Changed[] {
  const byCall = new Map<string, Changed>();
  for (const event of events)
    if (event.type === "delegation.changed") byCall.set(event.payload.toolUseId, event.payload);
  return [...byCall.values()];
}
