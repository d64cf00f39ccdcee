import type { ReactNode } from "react";
import { Icon } from "../shell/icon";

export interface TurnCardProps {
  readonly tone: "wait" | "failed";
  readonly title: string;
  readonly text: string;
  /** The buttons. */
  readonly children: ReactNode;
}

/** Something that needs a person's decision. */
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
