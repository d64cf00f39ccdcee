/** A user's message, as it was written, without Markdown. */

import type { Part } from "@outlast/client";
import { useState } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Picture } from "./picture";
import { quietly } from "./quietly";

/** Longer messages are folded, so that a pasted file does not push everything else away. */
const FOLD_AT = 2_000;

export interface UserMessageProps {
  readonly parts: readonly Part[];
  readonly note: string | null;
  /** Removes it from the queue. */
  readonly onRemove?: (() => Promise<unknown>) | null;
  readonly children?: ReactNode;
}

export function UserMessage({ parts, note, onRemove = null, children }: UserMessageProps): ReactNode {
  return (
    <article className="user-message" aria-label="You">
      <div className="bubble" dir="auto">
        {parts.map((part, place) =>
          part.type === "text" ? (
            <Text key={place} text={part.text} />
          ) : part.type === "image" ? (
            <Picture key={place} url={part.url} />
          ) : null,
        )}
      </div>
      {(note !== null || children) && (
        <div className="user-note">
          {note}
          {onRemove !== null && (
            <button type="button" className="link-button" onClick={() => quietly(onRemove())}>
              Remove
            </button>
          )}
          {children}
        </div>
      )}
    </article>
  );
}

function Text({ text }: { readonly text: string }): ReactNode {
  const [isWhole, setWhole] = useState(false);
  if (text.length <= FOLD_AT || isWhole) return <p>{revealBidi(text)}</p>;
  return (
    <>
      <p>{revealBidi(text.slice(0, FOLD_AT))}…</p>
      <button type="button" className="link-button" onClick={() => setWhole(true)}>
        Show all
      </button>
    </>
  );
}
