/** The servers that share the store: what each holds, and which one died. */

import type { Instance } from "@outlast/client";
import type { ReactNode } from "react";
import { timeOf } from "./time-of";

export function Instances({ list }: { readonly list: readonly Instance[] }): ReactNode {
  return (
    <section aria-label="Instances">
      <h2>
        Instances <span className="operate-count">{list.length}</span>
      </h2>
      <ul className="operate-list">
        {list.map((one, index) => (
          <Row key={one.instance} one={one} isThis={index === 0} />
        ))}
      </ul>
    </section>
  );
}

/** The server names the instance that responded first. */
function Row({ one, isThis }: { readonly one: Instance; readonly isThis: boolean }): ReactNode {
  const { live, owners, followers, startedAt } = one;
  return (
    <li>
      <Lease has={one.hasLease} isThis={isThis} />
      <span className="operate-id">{one.instance}</span>
      <span title="Version">{one.version ?? "version unknown"}</span>
      <span title="Generations that it runs or has queued, and conversations that it owns">
        {live === undefined ? "" : `${live} live, ${owners ?? 0} owned`}
      </span>
      <span title="Streams that clients follow">
        {followers === undefined ? "" : `${followers} ${followers === 1 ? "follower" : "followers"}`}
      </span>
      {startedAt !== undefined && (
        <time dateTime={startedAt} title="Started">
          since {timeOf(startedAt)}
        </time>
      )}
    </li>
  );
}

function Lease({ has, isThis }: { readonly has: boolean; readonly isThis: boolean }): ReactNode {
  if (!has) {
    return (
      <span className="badge is-error" title="Its lease has expired; others take over what it held">
        lease expired
      </span>
    );
  }
  return (
    <span className="badge is-running" title="It has a valid lease">
      {isThis ? "this instance" : "running"}
    </span>
  );
}
