/** Who makes an answer: the server, or a worker elsewhere. Only the generation's second event tells. */

import { useEffect, useState } from "react";
import { client } from "../client";

export type Maker = "server" | "worker";

/** Null until it is known. */
export function useMaker(generationId: string): Maker | null {
  const [maker, setMaker] = useState<Maker | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    client.getGenerationEvents(generationId, { limit: 2, signal: stop.signal }).then(
      ({ data }) => {
        const isWorkers = data.some(
          (event) => event.type === "generation.queued" && event.payload.producer === "external",
        );
        setMaker(isWorkers ? "worker" : "server");
      },
      // Then what is not possible is refused, and says so.
      () => stop.signal.aborted || setMaker("server"),
    );
    return () => stop.abort();
  }, [generationId]);
  return maker;
}
