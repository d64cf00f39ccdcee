import type { ReactNode } from "react";
import { Link } from "../shell/link";

export function MissingState(): ReactNode {
  return (
    <div className="empty" role="alert">
      <h2>This conversation is not here</h2>
      <p>It was deleted, or the address is wrong.</p>
      <Link to={{ type: "new" }} className="button button-primary">
        New chat
      </Link>
    </div>
  );
}
