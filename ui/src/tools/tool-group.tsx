/** A row of tool calls that went well, as one line. */

import type { Message } from "@outlast/client";
import { useState } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Icon } from "../shell/icon";
import { countTools } from "./tool-groups";

export interface ToolGroupProps {
  readonly messages: readonly Message[];
  /** The rows, which are in the page only while the group is open. */
  readonly children: () => ReactNode;
}

export function ToolGroup({ messages, children }: ToolGroupProps): ReactNode {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <div className="row" data-message={messages[0]?.id} data-role="tool">
        <button type="button" className="tool-group" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <Icon name="chevron" />
          <span>{messages.length} tool calls</span>
          <bdi className="tool-subject">{revealBidi(countTools(messages))}</bdi>
        </button>
      </div>
      {isOpen && children()}
    </>
  );
}
