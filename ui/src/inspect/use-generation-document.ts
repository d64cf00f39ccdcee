/** The generation's document, loaded at the start and again when the generation has ended. */

import type { Generation } from "@outlast/client";
import { useEffect, useState } from "react";
import { client } from "../client";

export function useGenerationDocument(id: string, isOver: boolean): Generation | null {
  const [generation, setGeneration] = useState<Generation | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    client.getGenerationStatus(id, { signal: stop.signal }).then(setGeneration, () => {});
    return () => stop.abort();
  }, [id, isOver]);
  return generation;
}
