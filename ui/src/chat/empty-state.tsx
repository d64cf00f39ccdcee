/** The start of a conversation. */

import { useCapabilities, useConversations } from "@outlast/client/react";
import { useState } from "react";
import type { ReactNode } from "react";
import { client } from "../client";
import { Icon } from "../shell/icon";
import { Link } from "../shell/link";
import { titleOf } from "../shell/title";

/** Shown first where the server runs tools: within a minute a newcomer sees one run, and is asked about another. */
const WITH_TOOLS = "/demo project";
const EXAMPLES = [
  "Tell me what you do, in 400 words",
  "How do I get back to an answer after losing the network?",
  "Compare tea and coffee in a small table",
] as const;

export function EmptyState({ onSend }: { readonly onSend: (text: string) => void }): ReactNode {
  const offered = useCapabilities();
  return (
    <div className="empty">
      <h2>What would you like to know?</h2>
      {offered?.background !== false && (
        <p>Reload, close the tab or lose the network: the server finishes the answer and keeps it for you.</p>
      )}
      <ul className="examples" aria-label="Examples">
        {(offered?.tools.length ? [WITH_TOOLS, ...EXAMPLES] : EXAMPLES).map((example) => (
          <li key={example}>
            <button type="button" className="example" onClick={() => onSend(example)}>
              {example}
            </button>
          </li>
        ))}
      </ul>
      {offered?.tools.length === 0 && <p className="offer-note">Tools are not available on this server.</p>}
      <WayBack />
    </div>
  );
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
