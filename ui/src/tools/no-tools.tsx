/** Says that a server has no tools, and how to get them. */

import type { Capabilities, View } from "@outlast/client";
import { useCapabilities } from "@outlast/client/react";
import type { ReactNode } from "react";
import { sentence } from "../shell/sentence";

export interface NoToolsProps {
  readonly offered: Capabilities | null;
  readonly className: string;
}

export function NoTools({ offered, className }: NoToolsProps): ReactNode {
  if (offered === null || offered.tools.length > 0) return null;
  return (
    <p className={className}>
      Tools are not available on this server.
      {offered.toolsProblem != null && ` ${sentence(offered.toolsProblem.replaceAll("`", ""))}`}
    </p>
  );
}

/** Below an answer that would have used tools: the demo is the one that a page can tell. */
export function NoToolsHere({ view }: { readonly view: View | null }): ReactNode {
  const offered = useCapabilities();
  const asked = view?.messages.findLast(({ role }) => role === "user")?.content ?? "";
  return /^\s*\/demo\b/i.test(asked) && <NoTools offered={offered} className="turn-note" />;
}
