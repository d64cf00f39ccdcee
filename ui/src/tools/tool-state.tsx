/** How far a tool call has got, in a word or two. */

import type { ReactNode } from "react";
import { duration } from "../shell/duration";
import { useNow } from "../shell/use-now";
import type { ToolCall } from "./tool-call";

export function ToolStateNote({ call }: { readonly call: ToolCall }): ReactNode {
  return (
    <span className={`tool-state is-${call.state}`}>
      <Words call={call} />
    </span>
  );
}

function Words({ call: { state, result, since } }: { readonly call: ToolCall }): ReactNode {
  const took = result?.durationMs == null ? "" : ` · ${duration(result.durationMs)}`;
  switch (state) {
    case "asked":
      return "waiting for you";
    case "queued":
      return "not started";
    case "running":
      return <Running since={since} />;
    case "interrupted":
      return "interrupted";
    case "done":
      return `done${took}`;
    case "failed":
      return `${result?.exitCode == null ? "failed" : `exit code ${result.exitCode}`}${took}`;
    case "denied":
      return "denied";
    case "unknown":
      return "outcome unknown";
    case "stopped":
      return `stopped${took}`;
    case "open":
      return "no result";
  }
}

function Running({ since }: { readonly since: string | null }): ReactNode {
  const now = useNow(since !== null);
  const seconds = since === null || now === null ? 0 : Math.floor((now - Date.parse(since)) / 1_000);
  return (
    <>
      <span className="pulse" aria-hidden="true" />
      {seconds < 1 ? "running" : `running · ${duration(seconds * 1_000)}`}
    </>
  );
}
