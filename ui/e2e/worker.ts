/** A worker as described in PROTOCOL.md: it owns the answer, and asks a person before it uses a tool. */

import type { Stage } from "./stage";

export interface Worker {
  readonly conversationId: string;
  readonly generationId: string;
  /** Appends events. */
  say(...events: readonly { readonly type: string; readonly payload: object }[]): Promise<void>;
  /** Withdraws everything it said and asked. */
  startOver(): Promise<void>;
  /** The questions, each with its decision. */
  approvals(): Promise<readonly Asked[]>;
}

export interface Asked {
  readonly toolUseId: string;
  readonly hash: string;
  readonly decided?: { readonly decision: string; readonly by: string };
}

interface Standing {
  readonly epoch: number;
  readonly lastSeq: number;
  readonly approvals: readonly Asked[];
}

/** Without a conversation it creates one. */
export async function startWorker(
  { server }: Stage,
  content: string,
  within: { readonly conversationId?: string } = {},
): Promise<Worker> {
  const post = async <Answer>(path: string, body: object): Promise<Answer> => {
    const response = await fetch(`${server.url}/v1/generations${path}`, {
      method: "POST",
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path} failed with ${response.status}: ${await response.text()}`);
    return (await response.json()) as Answer;
  };
  const started = await post<{ conversationId: string; generationId: string }>("", {
    ...within,
    content,
    producer: "external",
  });
  const { conversationId, generationId } = started;
  let standing = await post<Standing>(`/${generationId}/claim`, { keep: true });
  return {
    conversationId,
    generationId,
    async say(...events) {
      const { epoch, lastSeq: expectedSeq } = standing;
      standing = await post(`/${generationId}/events`, { epoch, expectedSeq, events });
    },
    async startOver() {
      standing = await post<Standing>(`/${generationId}/claim`, { keep: false });
    },
    async approvals() {
      standing = await post(`/${generationId}/heartbeat`, { epoch: standing.epoch });
      return standing.approvals;
    },
  };
}

export function asks(toolUseId: string, command: string): { type: string; payload: object } {
  return { type: "approval.requested", payload: { toolUseId, toolName: "bash", toolInput: { command } } };
}
