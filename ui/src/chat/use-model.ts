/** Which models there are, and which one this person wants. */

import { useEffect, useState } from "react";
import { client } from "../client";

const KEY = "outlast:model";

export interface ModelChoice {
  /** Empty until they are known. */
  readonly models: readonly string[];
  /** Null leaves it to the server. */
  readonly chosen: string | null;
  readonly choose: (model: string) => void;
}

export function useModel(): ModelChoice {
  const [models, setModels] = useState<readonly string[]>([]);
  const [chosen, setChosen] = useState(readChoice);
  useEffect(() => {
    const stop = new AbortController();
    client.listModels({ signal: stop.signal }).then(
      (models) => setModels(models.map(({ id }) => id)),
      // Without the list the server's own choice answers.
      () => {},
    );
    return () => stop.abort();
  }, []);
  const choose = (model: string): void => {
    setChosen(model);
    try {
      localStorage.setItem(KEY, model);
    } catch {
      // A private window forgets it.
    }
  };
  return { models, chosen: chosen !== null && models.includes(chosen) ? chosen : null, choose };
}

function readChoice(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
