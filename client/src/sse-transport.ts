/** Server-Sent Events over `fetch`, which unlike `EventSource` can carry headers and read refusals. */

import { parseEvent } from "./event.js";
import type { OutlastEvent } from "./event.js";
import type { Http } from "./http.js";
import { OutlastError } from "./problem.js";
import { SseParser } from "./sse.js";
import type { Sink, Target, Transport } from "./transport.js";

export function sseTransport(http: Http): Transport {
  return {
    scarce: true,
    open(target, sink) {
      const abort = new AbortController();
      void stream(http, target, sink, abort.signal);
      return () => abort.abort();
    },
  };
}

async function stream(http: Http, { path, after }: Target, sink: Sink, signal: AbortSignal): Promise<void> {
  try {
    const options = { query: { after }, signal };
    const response = await http.send("GET", `${path}/events`, options, "text/event-stream");
    const type = response.headers.get("content-type") ?? "";
    if (!type.startsWith("text/event-stream") || response.body === null) {
      void response.body?.cancel();
      return sink.closed({
        type: "lost",
        detail: "what answers here is not Outlast",
      });
    }
    sink.opened();
    await read(response.body, sink);
  } catch (error) {
    if (error instanceof OutlastError && error.status !== 0) sink.closed({ type: "refused", error });
    else
      sink.closed({
        type: "lost",
        detail: error instanceof OutlastError ? error.detail : "the connection broke",
      });
  }
}

async function read(body: ReadableStream<Uint8Array>, sink: Sink): Promise<void> {
  const reader = body.getReader();
  const parser = new SseParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return sink.closed({ type: "lost", detail: "the connection broke" });
      const events: OutlastEvent[] = [];
      for (const data of parser.push(value)) {
        const event = parseEvent(data);
        if (event === null) return sink.closed({ type: "lost", detail: "an event could not be read" });
        events.push(event);
      }
      if (events.length > 0) sink.events(events);
      else sink.alive();
    }
  } finally {
    // Whatever ended it, the connection is given back. It may be broken already; that is no news.
    reader.cancel().catch(() => {});
  }
}
