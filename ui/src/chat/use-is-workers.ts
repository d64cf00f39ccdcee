/** Whether a worker produces an answer, rather than the server. Only the generation's second event says. */

import { useEffect, useState } from "react";
import { client } from "../client";

/** Null until it is known. */
export function useIsWorkers(generationId: string): boolean | null {
  const [isWorkers, setWorkers] = useState<boolean | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    client.getGenerationEvents(generationId, { limit: 2, signal: stop.signal }).then(
      ({ data }) =>
        setWorkers(
          data.some((event) => event.type === "generation.queued" && event.payload.producer === "external"),
        ),
      // Then Resume is offered, and the server refuses it with a reason if a worker owns the answer.
      () => stop.signal.aborted || setWorkers(false),
    );
    return () => stop.abort();
  }, [generationId]);
  return isWorkers;
}
