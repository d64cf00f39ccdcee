/** Announces how an answer proceeds to people who use a screen reader. */

import type { Conversation, GenerationStatus } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useRef } from "react";
import { announce } from "../shell/announcer";

/** Null where nothing is worth saying. */
const WORDS: Readonly<Record<GenerationStatus, string | null>> = {
  queued: null,
  running: "The assistant is answering.",
  interrupted: "The answer was interrupted. Resume or dismiss it.",
  awaiting_approval: "Your decision is needed.",
  paused: null,
  completed: "The answer is complete.",
  cancelled: "The answer was stopped.",
  error: "The answer failed.",
};

interface Before {
  readonly conversation: Conversation;
  /** Null until the conversation is loaded. */
  readonly said: string | null;
}

export function useAnnouncements({ conversation, id, view, generation }: UseConversation): void {
  const before = useRef<Before | null>(null);
  const words = generation === null ? null : (WORDS[generation.status] ?? null);
  // A new conversation has no history. In any other it is unknown until the view is loaded.
  const said =
    generation !== null ? `${generation.id} ${generation.status}` : id === null || view ? "" : null;
  useEffect(() => {
    const last = before.current;
    const isSame = last?.conversation === conversation;
    before.current = { conversation, said: said ?? (isSame ? last.said : null) };
    // The state at the time the page was opened is not announced.
    const isNews = isSame && last.said !== null && said !== null && last.said !== said;
    if (isNews && words !== null) announce(words);
  }, [conversation, said, words]);
}
