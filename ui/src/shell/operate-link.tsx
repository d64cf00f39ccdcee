/** The way to the operator's page, for those whose key allows it. */

import { useCapabilities } from "@outlast/client/react";
import type { ReactNode } from "react";
import { Icon } from "./icon";
import { Link } from "./link";

export interface OperateLinkProps {
  readonly isCurrent: boolean;
  readonly onFollow: () => void;
}

export function OperateLink({ isCurrent, onFollow }: OperateLinkProps): ReactNode {
  if (useCapabilities()?.scopes.includes("admin") !== true) return null;
  return (
    <Link to={{ type: "operate" }} className="operate-link" isCurrent={isCurrent} onFollow={onFollow}>
      <Icon name="inspect" />
      <span>Operation</span>
    </Link>
  );
}
