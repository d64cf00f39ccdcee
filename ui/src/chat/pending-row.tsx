/** A message that is being sent. */

import { contentText } from "@outlast/client";
import type { PendingMessage } from "@outlast/client";
import { memo, useEffect, useState } from "react";
import { sentence } from "../shell/sentence";
import { quietly } from "./quietly";
import { UserMessage } from "./user-message";

/** A message that is saved sooner than this is not marked as being sent. */
const PATIENCE_MS = 800;

export interface PendingRowProps {
  readonly message: Pick<PendingMessage, "requestId" | "status" | "error" | "content">;
  readonly onResend: (requestId: string) => Promise<unknown>;
  readonly onDiscard: (requestId: string) => void;
}

export const PendingRow = memo(function PendingRow({ message, onResend, onDiscard }: PendingRowProps) {
  const { requestId, status, error, content } = message;
  const isLate = useLate(status === "sending");
  const parts = [{ type: "text", text: contentText(content) }] as const;
  return (
    <div className="row" data-role="user" data-pending={status}>
      <UserMessage parts={parts} note={status === "sending" && isLate ? "Sending…" : null}>
        {status === "failed" && (
          <span className="failed" role="alert">
            Not sent. {error === null ? "" : sentence(error.detail)}
            <button type="button" className="link-button" onClick={() => quietly(onResend(requestId))}>
              Try again
            </button>
            <button type="button" className="link-button" onClick={() => onDiscard(requestId)}>
              Discard
            </button>
          </span>
        )}
      </UserMessage>
    </div>
  );
});

function useLate(isWaiting: boolean): boolean {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    if (!isWaiting) return;
    const timer = setTimeout(() => setLate(true), PATIENCE_MS);
    return () => {
      clearTimeout(timer);
      setLate(false);
    };
  }, [isWaiting]);
  return isLate;
}
