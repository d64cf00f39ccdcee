import type { ReactNode } from "react";
import { Link } from "../shell/link";

export function MissingState(): ReactNode {
  return (
    <div className="empty" role="alert">
      <h2>Conversation not found</h2>
      <p>It may have been deleted, or the address may be wrong.</p>
      <Link to={{ type: "new" }} className="button button-primary">
        New chat
      </Link>
    </div>
  );
}
