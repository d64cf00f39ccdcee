/** Says what becomes of an answer, for those who do not see it. */

import type { Conversation, GenerationStatus } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useRef } from "react";
import { announce } from "../shell/announcer";

const WORDS: Partial<Readonly<Record<GenerationStatus, string>>> = {
  running: "Answering",
  interrupted: "The answer was interrupted. Resume or dismiss it.",
  awaiting_approval: "A decision of yours is needed.",
  completed: "The answer is complete.",
  cancelled: "The answer was stopped.",
  error: "The answer failed.",
};

interface Before {
  readonly conversation: Conversation;
  /** Null until it is known how things stand. */
  readonly said: string | null;
}

export function useAnnouncements({ conversation, id, view, generation }: UseConversation): void {
  const before = useRef<Before | null>(null);
  const words = generation === null ? undefined : WORDS[generation.status];
  // In a new conversation nothing was there before. Elsewhere it is not known before the view is.
  const said =
    generation !== null ? `${generation.id} ${generation.status}` : id === null || view ? "" : null;
  useEffect(() => {
    const last = before.current;
    const isSame = last?.conversation === conversation;
    before.current = { conversation, said: said ?? (isSame ? last.said : null) };
    // How things stood when the page was opened is no news.
    const isNews = isSame && last.said !== null && said !== null && last.said !== said;
    if (isNews && words !== undefined) announce(words);
  }, [conversation, said, words]);
}
