/** Sends what a person wrote, and again after a reload what is not known to have arrived. */

import type { UseConversation } from "@outlast/client/react";
import { useEffect, useEffectEvent, useState } from "react";
import { quietly } from "./quietly";
import { dropUnsent, keepUnsent, newName, takeUnsent } from "./unsent";
import type { Unsent } from "./unsent";

export type Send = (text: string, whenBusy: "queue" | "interrupt") => void;

export interface Sending {
  /** Those that had failed before the page was loaded. */
  readonly failed: readonly Unsent[];
  readonly send: Send;
  readonly resend: (requestId: string) => Promise<unknown>;
  readonly discard: (requestId: string) => void;
}

export function useSending(chat: UseConversation, model: string | null): Sending {
  const { conversation } = chat;
  const [taken, setTaken] = useState<{ readonly by: object; readonly failed: readonly Unsent[] } | null>(
    null,
  );
  const failed = taken?.by === conversation ? taken.failed : [];
  const leave = (requestId: string): void =>
    setTaken({ by: conversation, failed: failed.filter((message) => message.requestId !== requestId) });

  const deliver = async (message: Unsent): Promise<void> => {
    const { text, requestId, whenBusy, model } = message;
    // Written down first: the page may be gone before there is an answer.
    keepUnsent({ ...message, hasFailed: false });
    try {
      await conversation.send(text, { requestId, whenBusy, model: model ?? undefined });
      dropUnsent(requestId);
    } catch (error) {
      keepUnsent({ ...message, hasFailed: true });
      throw error;
    }
  };
  const takeUp = useEffectEvent((messages: readonly Unsent[]) => {
    setTaken({ by: conversation, failed: messages.filter(({ hasFailed }) => hasFailed) });
    for (const message of messages) if (!message.hasFailed) quietly(deliver(message));
  });
  useEffect(() => {
    const stop = new AbortController();
    void takeUnsent(conversation.id, stop.signal).then((messages) => messages.length > 0 && takeUp(messages));
    return () => stop.abort();
  }, [conversation]);

  return {
    failed,
    send(text, whenBusy) {
      const conversationId = conversation.id;
      const name = { requestId: newName(), hasFailed: false, page: "" };
      quietly(deliver({ ...name, conversationId, text, whenBusy, model }));
    },
    async resend(requestId) {
      const message = failed.find((one) => one.requestId === requestId);
      if (message !== undefined) {
        leave(requestId);
        return deliver(message);
      }
      await conversation.resend(requestId);
      dropUnsent(requestId);
    },
    discard(requestId) {
      dropUnsent(requestId);
      leave(requestId);
      conversation.discard(requestId);
    },
  };
}
