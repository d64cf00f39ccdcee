/** Server-Sent Events over `fetch`, which unlike `EventSource` can send headers and read refusals. */

import { parseEvent } from "./event.js";
import type { OutlastEvent } from "./event.js";
import type { Http } from "./http.js";
import { networkError, OutlastError } from "./problem.js";
import { SseParser } from "./sse.js";
import type { Sink, Target, Transport } from "./transport.js";

export function sseTransport(http: Http): Transport {
  return {
    scarce: true,
    open(target, sink) {
      const abort = new AbortController();
      void stream(http, target, sink, abort.signal)
        .catch((error: unknown) => {
          const known = error instanceof OutlastError ? error : networkError("the connection was lost");
          sink.closed(
            known.status > 0 ? { type: "refused", error: known } : { type: "lost", detail: known.detail },
          );
        })
        // Whatever ended the stream, the connection is closed.
        .finally(() => abort.abort());
      return () => abort.abort();
    },
  };
}

/** Reads events until the stream fails. */
async function stream(http: Http, { path, after }: Target, sink: Sink, signal: AbortSignal): Promise<never> {
  const options = { query: { after }, signal };
  const { headers, body } = await http.send("GET", `${path}/events`, options, "text/event-stream");
  if (!headers.get("content-type")?.startsWith("text/event-stream") || body === null)
    throw networkError("the response is not from an Outlast server");
  sink.opened();
  const reader = body.getReader();
  const parser = new SseParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw networkError("the connection was lost");
    const events: OutlastEvent[] = [];
    for (const data of parser.push(value)) {
      const event = parseEvent(data);
      if (event === null) throw networkError("received an event that cannot be parsed");
      events.push(event);
    }
    if (events.length > 0) sink.events(events);
    else sink.alive();
  }
}
