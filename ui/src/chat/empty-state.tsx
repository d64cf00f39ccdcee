/** The start of a conversation. */

import type { Capabilities } from "@outlast/client";
import { useCapabilities, useConversations } from "@outlast/client/react";
import { useState } from "react";
import type { ReactNode } from "react";
import { client } from "../client";
import { Icon } from "../shell/icon";
import { Link } from "../shell/link";
import { titleOf } from "../shell/title";
import { NoTools } from "../tools/no-tools";

interface Example {
  /** What is sent. */
  readonly text: string;
  /** What to expect, where the text does not say it. */
  readonly note?: string;
  /** The model that plays it, if only one does. */
  readonly model?: string;
}

/** Shown first where the server runs tools: within two minutes a newcomer is asked, and sees a tool survive `kill -9`. */
const AGENT: Example = {
  text: "/demo project",
  model: "demo",
  note: "Watch an agent write a program, ask before running it, and fix a bug. Kill the server in between.",
};
const EXAMPLES: readonly Example[] = [
  { text: "Tell me what you do, in 400 words" },
  { text: "How do I get back to an answer after losing the network?" },
  { text: "Compare tea and coffee in a small table" },
];

export interface EmptyStateProps {
  readonly onSend: (text: string, model?: string) => void;
}

export function EmptyState({ onSend }: EmptyStateProps): ReactNode {
  const offered = useCapabilities();
  return (
    <div className="empty">
      <h2>What would you like to know?</h2>
      {offered?.background !== false && (
        <p>Reload, close the tab or lose the network: the server finishes the answer and keeps it for you.</p>
      )}
      {/* Not before the server said what it offers: a list that grows at the top moves under the finger. */}
      {offered !== null && (
        <ul className="examples" aria-label="Examples">
          {(hasAgent(offered) ? [AGENT, ...EXAMPLES] : EXAMPLES).map(({ text, note, model }) => (
            <li key={text}>
              <button type="button" className="example" onClick={() => onSend(text, model)}>
                {text}
                {note !== undefined && <span className="example-note">{note}</span>}
              </button>
            </li>
          ))}
        </ul>
      )}
      <NoTools offered={offered} className="offer-note" />
      <WayBack />
    </div>
  );
}

function hasAgent(offered: Capabilities): boolean {
  return offered.tools.length > 0 && offered.models.includes("demo");
}

/** A link to the conversation that this person had open last. */
function WayBack(): ReactNode {
  const [last] = useState(() => client.lastPosition());
  const { conversations } = useConversations();
  const conversation = conversations.find(({ id }) => id === last?.conversationId);
  if (conversation === undefined) return null;
  const isLive = conversation.generationStatus === "generating";
  return (
    <Link to={{ type: "conversation", id: conversation.id }} className="way-back">
      <Icon name="back" />
      <span>
        Back to “<bdi>{titleOf(conversation)}</bdi>”{isLive && ", still answering"}
      </span>
    </Link>
  );
}
