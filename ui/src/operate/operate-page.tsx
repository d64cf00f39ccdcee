/** What an operator looks at: what runs, waits and fails, of all users. It shows nothing that anyone wrote. */

import type { Overview, Seen } from "@outlast/client";
import { useEffect } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Link } from "../shell/link";
import { MenuButton } from "../shell/menu-button";
import { sentence } from "../shell/sentence";
import { useUser } from "../user";
import { Instances } from "./instances";
import { timeOf } from "./time-of";
import { useOverview } from "./use-overview";
import "../inspect/inspect.css";
import "./operate.css";

export function OperatePage({ onMenu }: { readonly onMenu: () => void }): ReactNode {
  const { overview, error } = useOverview();
  useEffect(() => {
    document.title = "Operation · Outlast";
  }, []);
  return (
    <section className="inspect operate" aria-label="Operation">
      <header className="page-head">
        <MenuButton onClick={onMenu} />
        <h1>Operation</h1>
      </header>
      <div className="inspect-body" tabIndex={0} role="region" aria-label="State of the server">
        {error !== null && (
          <p className="trouble" role="alert">
            Could not load the state of the server. {sentence(error)}
          </p>
        )}
        {overview !== null && <State overview={overview} />}
      </div>
    </section>
  );
}

function State({ overview }: { readonly overview: Overview }): ReactNode {
  const { resumes } = overview;
  const figures: readonly (readonly [string, string])[] = [
    ["Live", String(overview.live)],
    ["Followers", String(overview.followers)],
    ["Connections", String(overview.connections)],
    ["Interruptions", String(resumes.interruptions)],
    ["Resumed", String(resumes.resumes)],
    ["Successful resumes", share(resumes.completed, resumes.completed + resumes.failed)],
    ["Store", overview.store],
  ];
  return (
    <>
      <dl className="figures">
        {figures.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <Instances list={overview.instances} />
      <Generations title="Running" none="Nothing is running." list={overview.running} />
      <Generations title="Waiting for a decision" none="Nothing is waiting." list={overview.waiting} />
      <Generations title="Interrupted" none="Nothing was interrupted." list={overview.interrupted} />
      <Generations title="Failed recently" none="Nothing has failed." list={overview.failed} />
      <p className="operate-version">
        Live generations, followers, connections and resumes are those of this instance, since{" "}
        <time dateTime={overview.startedAt}>{timeOf(overview.startedAt)}</time>.
      </p>
    </>
  );
}

interface GenerationsProps {
  readonly title: string;
  readonly none: string;
  readonly list: readonly Seen[];
}

function Generations({ title, none, list }: GenerationsProps): ReactNode {
  return (
    <section aria-label={title}>
      <h2>
        {title} {list.length > 0 && <span className="operate-count">{list.length}</span>}
      </h2>
      {list.length === 0 ? (
        <p className="operate-none">{none}</p>
      ) : (
        <ul className="operate-list">
          {list.map((one) => (
            <Row key={one.generationId} one={one} />
          ))}
        </ul>
      )}
    </section>
  );
}

/** Only the generation's own user can inspect it. */
function Row({ one }: { readonly one: Seen }): ReactNode {
  const isOwn = one.user === useUser();
  const at = one.completedAt ?? one.startedAt;
  return (
    <li>
      <span className={`badge is-${one.status}`}>{one.status.replace("_", " ")}</span>
      <span className="operate-id">
        {isOwn ? (
          <Link to={{ type: "inspect", generationId: one.generationId }}>{one.generationId}</Link>
        ) : (
          one.generationId
        )}
      </span>
      <bdi title="User">{revealBidi(one.user)}</bdi>
      <span title="Model">
        {revealBidi(one.model)}
        {one.attempt > 1 && `, attempt ${one.attempt}`}
      </span>
      <span className="operate-reason">{one.endReason ?? ""}</span>
      {at !== null && <time dateTime={at}>{timeOf(at)}</time>}
    </li>
  );
}

function share(part: number, whole: number): string {
  return whole === 0 ? "none yet" : `${Math.round((100 * part) / whole)} %`;
}
