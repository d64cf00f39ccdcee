/** Who is logged in, and the way out. A server without keys has nobody to name. */

import { useState } from "react";
import type { ReactNode } from "react";
import { client } from "../client";
import { turnOffPush } from "../notifications/push";
import { NOBODY_NAMED, useUser } from "../user";

export function Account(): ReactNode {
  const user = useUser();
  const [hasFailed, setFailed] = useState(false);
  if (user === NOBODY_NAMED) return null;
  const logOut = (): Promise<void> =>
    turnOffPush()
      .catch(() => {})
      .then(() => client.logOut())
      .then(
        () => location.assign("/"),
        () => setFailed(true),
      );
  return (
    <div className="account">
      <bdi className="account-name" title={user}>
        {user}
      </bdi>
      <button type="button" className="quiet-button" onClick={() => void logOut()}>
        Log out
      </button>
      {hasFailed && <p role="alert">Could not log out.</p>}
    </div>
  );
}
