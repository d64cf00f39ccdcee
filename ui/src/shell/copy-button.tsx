/** Copies a text, and confirms it for a moment. */

import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { announce } from "./announcer";
import { copyText } from "./copy-text";
import { Icon } from "./icon";

const SAID_MS = 1_600;

export interface CopyButtonProps {
  readonly text: string;
  readonly label: string;
  /** Shown beside the icon. */
  readonly words?: string;
}

export function CopyButton({ text, label, words }: CopyButtonProps): ReactNode {
  const [done, setDone] = useState<"copied" | "failed" | null>(null);
  useEffect(() => {
    if (done === null) return;
    const timer = setTimeout(() => setDone(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async (): Promise<void> => {
    const isCopied = await copyText(text);
    setDone(isCopied ? "copied" : "failed");
    announce(isCopied ? "Copied" : "Could not copy");
  };
  return (
    <button
      type="button"
      className="quiet-button"
      aria-label={words === undefined ? label : undefined}
      title={label}
      onClick={() => void copy()}
    >
      <Icon name={done === "copied" ? "check" : done === "failed" ? "alert" : "copy"} />
      {(words !== undefined || done === "failed") && (
        <span>{done === "failed" ? "Could not copy" : words}</span>
      )}
    </button>
  );
}
