import type { ReactNode } from "react";
import { Icon } from "../shell/icon";

export interface TurnCardProps {
  readonly tone: "wait" | "failed";
  readonly title: string;
  readonly text: string;
  /** What can be done. */
  readonly children: ReactNode;
}

/** Something that waits for a person. */
export function TurnCard({ tone, title, text, children }: TurnCardProps): ReactNode {
  return (
    <div className={`turn-card is-${tone}`} role="group" aria-label={title}>
      <p className="turn-title">
        <Icon name="alert" />
        {title}
      </p>
      {text !== "" && <p className="turn-text">{text}</p>}
      <div className="turn-buttons">{children}</div>
    </div>
  );
}
