/** The answer after a number of events. */

import { apply, emptyView, partsOf } from "@outlast/client";
import type { OutlastEvent, View } from "@outlast/client";
import { useState } from "react";

/** Continues folding from the last position, and starts over only for an earlier one. */
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
  return answerIn(folding.at(events, count));
}

/** The text of the assistant's messages. */
export function answerIn(view: View): string {
  return view.messages
    .filter(({ role }) => role === "assistant")
    .flatMap((message) => partsOf(view, message))
    .map((part) => (part.type === "text" ? part.text : ""))
    .join("\n\n");
}
