/**
 * Why the run waits, also for a page that was opened during the wait: a view does not tell, its last event does.
 */

import type { ScheduledRetry } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useState } from "react";
import { client } from "../client";

/** A message that was queued meanwhile has two events of its own after the one that is looked for. */
const LOOK_BACK = 5;

interface Found extends ScheduledRetry {
  readonly generationId: string;
}

export function useRetry({ generation, view }: UseConversation): ScheduledRetry | null {
  const [found, setFound] = useState<Found | null>(null);
  const isKnown = view !== null;
  const generationId = generation?.status === "running" ? generation.id : null;
  // Asked once, for the run that was under way when the page was opened. Later ones are seen as they happen.
  const [first, setFirst] = useState<{ id: string | null; after: number } | null>(null);
  if (first === null && isKnown) setFirst({ id: generationId, after: Math.max(0, view.lastSeq - LOOK_BACK) });
  const asked = first?.id ?? null;
  const after = first?.after ?? 0;
  useEffect(() => {
    if (asked === null) return;
    const stop = new AbortController();
    client.getGenerationEvents(asked, { after, signal: stop.signal }).then(
      ({ data }) => {
        const last = data.at(-1);
        if (last?.type === "retry.scheduled") setFound({ ...last.payload, ts: last.ts, generationId: asked });
      },
      // Then it is only not said why it waits.
      () => {},
    );
    return () => stop.abort();
  }, [asked, after]);
  if (generation?.retry != null) return generation.retry;
  // Over as soon as the next attempt has begun.
  const isStill =
    found !== null && found.generationId === generationId && (generation?.attempt ?? 0) < found.attempt;
  return isStill ? found : null;
}
