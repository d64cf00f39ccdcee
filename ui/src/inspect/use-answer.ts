/** What the answer was after so many events. */

import { apply, emptyView, partsOf } from "@outlast/client";
import type { OutlastEvent, View } from "@outlast/client";
import { useState } from "react";

/** Folds on from where it was; only a step back begins anew. */
class Folding {
  #count = 0;
  #view: View = emptyView("", "");

  at(events: readonly OutlastEvent[], count: number): View {
    if (count < this.#count) {
      this.#count = 0;
      this.#view = emptyView("", "");
    }
    for (; this.#count < count; this.#count += 1) {
      const event = events[this.#count];
      if (event !== undefined) this.#view = apply(this.#view, event);
    }
    return this.#view;
  }
}

export function useAnswer(events: readonly OutlastEvent[], count: number): string {
  const [folding] = useState(() => new Folding());
  const view = folding.at(events, count);
  return view.messages
    .filter(({ role }) => role === "assistant")
    .flatMap((message) => partsOf(view, message))
    .map((part) => (part.type === "text" ? part.text : ""))
    .join("\n\n");
}
