/** The models on offer, and the one that the person chose. */

import { useEffect, useState } from "react";
import { client } from "../client";
import { readStored, store } from "../shell/stored";
import { useUser } from "../user";

const NAME = "model";

export interface ModelChoice {
  /** Empty until the list is loaded. */
  readonly models: readonly string[];
  /** Null leaves the choice to the server. */
  readonly chosen: string | null;
  readonly choose: (model: string) => void;
}

export function useModel(): ModelChoice {
  const user = useUser();
  const [models, setModels] = useState<readonly string[]>([]);
  const [chosen, setChosen] = useState(() => readStored(user, NAME));
  useEffect(() => {
    const stop = new AbortController();
    const read = (): void => {
      if (document.visibilityState === "hidden") return;
      client.listModels({ signal: stop.signal }).then(
        (models) => setModels(models.map(({ id }) => id)),
        // Without the list the chosen model is requested as it is. The server refuses one that it does not have.
        () => {},
      );
    };
    read();
    // The server may not have been reachable, and a restart may bring another list.
    addEventListener("online", read, stop);
    document.addEventListener("visibilitychange", read, stop);
    return () => stop.abort();
  }, []);
  const choose = (model: string): void => {
    setChosen(model);
    store(user, NAME, model);
  };
  const isGone = chosen !== null && models.length > 0 && !models.includes(chosen);
  return { models, chosen: isGone ? null : chosen, choose };
}
