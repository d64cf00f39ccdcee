/** The files of a conversation and their changes, loaded when the panel opens and again when they may have changed. */

import type { FilePage } from "@outlast/client";
import { useEffect, useState } from "react";
import { client } from "../client";
import { parseDiff } from "./diff";
import type { FileDiff } from "./diff";

export interface Workspace {
  /** Null until it is loaded. */
  readonly files: FilePage | null;
  readonly diffs: readonly FileDiff[];
  /** Why it could not be loaded. */
  readonly error: string | null;
}

const NOTHING: Workspace = { files: null, diffs: [], error: null };

export interface WorkspaceAsked {
  readonly conversationId: string;
  readonly since: string | null;
  /** A change of it loads everything again. */
  readonly version: string;
}

export function useWorkspace({ conversationId, since, version }: WorkspaceAsked): Workspace {
  const [workspace, setWorkspace] = useState(NOTHING);
  useEffect(() => {
    const stop = new AbortController();
    const asked = { ...(since !== null && { since }), signal: stop.signal };
    const diff = since === null ? "" : client.getDiff(conversationId, asked);
    Promise.all([client.listFiles(conversationId, asked), diff]).then(
      ([files, diff]) => setWorkspace({ files, diffs: parseDiff(diff), error: null }),
      (error: unknown) => {
        if (stop.signal.aborted) return;
        const detail = error instanceof Error ? error.message : "";
        setWorkspace((before) => ({ ...before, error: detail }));
      },
    );
    return () => stop.abort();
  }, [conversationId, since, version]);
  return workspace;
}
