/** Chooses which event types are listed. */

import type { OutlastEvent } from "@outlast/client";
import type { ReactNode } from "react";

export interface TypeFilterProps {
  readonly events: readonly OutlastEvent[];
  /** Types that are not listed. */
  readonly hidden: ReadonlySet<string>;
  readonly onChange: (hidden: ReadonlySet<string>) => void;
}

export function TypeFilter({ events, hidden, onChange }: TypeFilterProps): ReactNode {
  const counts = new Map<string, number>();
  for (const { type } of events) counts.set(type, (counts.get(type) ?? 0) + 1);
  const toggle = (type: string): void => {
    const next = new Set(hidden);
    if (!next.delete(type)) next.add(type);
    onChange(next);
  };
  return (
    <div className="type-filter" role="group" aria-label="Event types">
      {[...counts].map(([type, count]) => (
        <button
          key={type}
          type="button"
          className="chip"
          aria-pressed={!hidden.has(type)}
          onClick={() => toggle(type)}
        >
          {type} <span className="chip-count">{count}</span>
        </button>
      ))}
    </div>
  );
}
