/** Which messages of a transcript are shown as one line: a long row of tool calls that all went well. */

import type { Message } from "@outlast/client";

/** Fewer are shown one by one. */
const GROUP_MIN = 4;

export type Shown =
  | { readonly type: "message"; readonly message: Message }
  | { readonly type: "group"; readonly messages: readonly Message[] };

/** The last row of a run stays open, because more may follow. */
export function groupTools(messages: readonly Message[], running: string | null): readonly Shown[] {
  const shown: Shown[] = [];
  let from = 0;
  while (from < messages.length) {
    let to = from;
    while (to < messages.length && isQuiet(messages[to], messages[from])) to += 1;
    const isOver = to < messages.length || messages[from]?.generationId !== running;
    if (to - from >= GROUP_MIN && isOver) shown.push({ type: "group", messages: messages.slice(from, to) });
    else
      for (const message of messages.slice(from, Math.max(to, from + 1)))
        shown.push({ type: "message", message });
    from = Math.max(to, from + 1);
  }
  return shown;
}

function isQuiet(message: Message | undefined, first: Message | undefined): boolean {
  return (
    message?.role === "tool" &&
    message.generationId === first?.generationId &&
    message.parts.some((part) => part.type === "tool_result" && !part.isError)
  );
}

/** The tools of a group, each with the number of its calls. */
export function countTools(messages: readonly Message[]): string {
  const counts = new Map<string, number>();
  for (const { parts } of messages)
    for (const part of parts)
      if (part.type === "tool_use") counts.set(part.name, (counts.get(part.name) ?? 0) + 1);
  return [...counts].map(([name, count]) => (count === 1 ? name : `${name} × ${count}`)).join(", ");
}
