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
    const read = (): void => {
      if (document.visibilityState === "hidden") return;
      client.listModels({ signal: stop.signal }).then(
        (models) => setModels(models.map(({ id }) => id)),
        // Without the list what was chosen is asked for, and if there is no such model, the server says so.
        () => {},
      );
    };
    read();
    // The list may not have been there to be read, or be another one after a restart.
    addEventListener("online", read, stop);
    document.addEventListener("visibilitychange", read, stop);
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
  const isGone = chosen !== null && models.length > 0 && !models.includes(chosen);
  return { models, chosen: isGone ? null : chosen, choose };
}

function readChoice(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
