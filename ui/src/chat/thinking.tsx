/** What the model thought before it spoke: folded, because few want to read it. */

import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { Markdown } from "../markdown/markdown";
import { Icon } from "../shell/icon";
import { duration } from "../shell/duration";
import { thoughtBegan, thoughtEnded, thoughtMs } from "./thought-times";

export interface ThinkingProps {
  readonly text: string;
  /** Names the thought: a message may have several. */
  readonly id: string;
  /** When it began, if that is known. */
  readonly since: string | null;
  /** Whether it is still thinking. */
  readonly isThinking: boolean;
}

export function Thinking({ text, id, since, isThinking }: ThinkingProps): ReactNode {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (isThinking) thoughtBegan(id, since);
    else thoughtEnded(id);
  }, [isThinking, id, since]);
  const ms = isThinking ? null : thoughtMs(id);
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
