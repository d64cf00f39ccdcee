/** Sends what a person wrote, and again after a reload what is not known to have arrived. */

import type { UseConversation } from "@outlast/client/react";
import { useEffect, useEffectEvent } from "react";
import { quietly } from "./quietly";
import { dropUnsent, keepUnsent, newName, takeUnsent } from "./unsent";
import type { Unsent } from "./unsent";

export type Send = (text: string, whenBusy: "queue" | "interrupt") => void;

export interface Sending {
  readonly send: Send;
  readonly resend: (requestId: string) => Promise<unknown>;
  readonly discard: (requestId: string) => void;
}

export function useSending(chat: UseConversation, model: string | null): Sending {
  const { conversation } = chat;
  const deliver = ({ text, requestId, whenBusy, model }: Omit<Unsent, "page">): void =>
    quietly(
      conversation
        .send(text, { requestId, whenBusy, model: model ?? undefined })
        .then(() => dropUnsent(requestId)),
    );
  const again = useEffectEvent(deliver);

  useEffect(() => {
    const stop = new AbortController();
    void takeUnsent(conversation.id, stop.signal).then((messages) => messages.forEach((one) => again(one)));
    return () => stop.abort();
  }, [conversation]);

  return {
    send(text, whenBusy) {
      const message = { requestId: newName(), conversationId: conversation.id, text, whenBusy, model };
      // Written down first: the page may be gone before there is an answer.
      keepUnsent(message);
      deliver(message);
    },
    resend: (requestId) => conversation.resend(requestId).then(() => dropUnsent(requestId)),
    discard(requestId) {
      dropUnsent(requestId);
      conversation.discard(requestId);
    },
  };
}
