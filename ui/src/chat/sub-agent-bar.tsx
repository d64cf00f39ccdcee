/** In place of the message field, in the conversation of a sub-agent: nobody writes to it. */

import type { UseConversation } from "@outlast/client/react";
import type { ReactNode } from "react";
import { Link } from "../shell/link";
import { quietly } from "./quietly";

export interface SubAgentBarProps {
  readonly chat: UseConversation;
  readonly parentId: string;
}

export function SubAgentBar({ chat, parentId }: SubAgentBarProps): ReactNode {
  return (
    <div className="composer turn-note">
      <p>
        A sub-agent works here for{" "}
        <Link to={{ type: "conversation", id: parentId }}>another conversation</Link>. Write your messages
        there.
      </p>
      {chat.view?.activeRun != null && (
        <button type="button" className="button" onClick={() => quietly(chat.cancel())}>
          Stop the sub-agent
        </button>
      )}
    </div>
  );
}
