/** The model's thinking, folded by default. */

import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { Markdown } from "../markdown/markdown";
import { Icon } from "../shell/icon";
import { duration } from "../shell/duration";
import { useUser } from "../user";
import { thoughtBegan, thoughtEnded, thoughtMs } from "./thought-times";

export interface ThinkingProps {
  readonly text: string;
  /** Identifies the thought: a message may have several. */
  readonly id: string;
  /** When it began, if that is known. */
  readonly since: string | null;
  readonly isThinking: boolean;
}

export function Thinking({ text, id, since, isThinking }: ThinkingProps): ReactNode {
  const user = useUser();
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (isThinking) thoughtBegan(id, since);
    else thoughtEnded(user, id);
  }, [user, isThinking, id, since]);
  const ms = isThinking ? null : thoughtMs(user, id);
  return (
    <details className="thinking" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Icon name="chevron" />
        <span className={isThinking ? "shimmer" : undefined}>
          {isThinking ? "Thinking…" : ms === null ? "Thought" : `Thought for ${duration(ms)}`}
        </span>
      </summary>
      {isOpen && <Markdown text={text} isStreaming={isThinking} />}
    </details>
  );
}
