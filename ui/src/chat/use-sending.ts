/** Sends messages, and sends them again after a reload if they were not confirmed. */

import type { UseConversation } from "@outlast/client/react";
import { useEffect, useEffectEvent, useState } from "react";
import { useUser } from "../user";
import { quietly } from "./quietly";
import { dropUnsent, keepUnsent, newRequestId, takeUnsent } from "./unsent";
import type { Unsent } from "./unsent";

/** With the chosen model, unless another is given. */
export type Send = (text: string, whenBusy: "queue" | "interrupt", model?: string) => void;

export interface Sending {
  /** Messages that had failed before the page was loaded. */
  readonly failed: readonly Unsent[];
  readonly send: Send;
  readonly resend: (requestId: string) => Promise<unknown>;
  readonly discard: (requestId: string) => void;
}

interface Taken {
  readonly by: object;
  readonly failed: readonly Unsent[];
}

export function useSending(chat: UseConversation, model: string | null): Sending {
  const { conversation } = chat;
  const user = useUser();
  const [taken, setTaken] = useState<Taken | null>(null);
  const failed = taken?.by === conversation ? taken.failed : [];
  const leave = (requestId: string): void =>
    setTaken({ by: conversation, failed: failed.filter((message) => message.requestId !== requestId) });

  const deliver = async (message: Unsent): Promise<void> => {
    const { text, requestId, whenBusy, model } = message;
    // Stored first: the page may be closed before the server responds.
    keepUnsent(user, { ...message, hasFailed: false });
    try {
      await conversation.send(text, { requestId, whenBusy, model: model ?? undefined });
      dropUnsent(user, requestId);
    } catch (error) {
      keepUnsent(user, { ...message, hasFailed: true });
      throw error;
    }
  };
  const takeUp = useEffectEvent((messages: readonly Unsent[]) => {
    setTaken({ by: conversation, failed: messages.filter(({ hasFailed }) => hasFailed) });
    for (const message of messages) if (!message.hasFailed) quietly(deliver(message));
  });
  useEffect(() => {
    const stop = new AbortController();
    const taking = takeUnsent(user, conversation.id, stop.signal);
    void taking.then((messages) => messages.length > 0 && takeUp(messages));
    return () => stop.abort();
  }, [user, conversation]);

  return {
    failed,
    send(text, whenBusy, another) {
      const conversationId = conversation.id;
      const sent = { requestId: newRequestId(), hasFailed: false, page: "" };
      quietly(deliver({ ...sent, conversationId, text, whenBusy, model: another ?? model }));
    },
    async resend(requestId) {
      const message = failed.find((one) => one.requestId === requestId);
      if (message !== undefined) {
        leave(requestId);
        return deliver(message);
      }
      await conversation.resend(requestId);
      dropUnsent(user, requestId);
    },
    discard(requestId) {
      dropUnsent(user, requestId);
      leave(requestId);
      conversation.discard(requestId);
    },
  };
}
