/** The state of a conversation's sandbox: in the header, and in the transcript when something happened to it. */

import type { ConversationDocument } from "@outlast/client";
import type { ReactNode } from "react";

type State = NonNullable<ConversationDocument["sandboxState"]>;

/** In the header: a colour, a word, and what it means. */
const HEADER: Readonly<Record<State, readonly [string, string, string]>> = {
  created: ["live", "Sandbox", "The sandbox of this conversation is running."],
  resumed: ["live", "Sandbox", "The sandbox of this conversation is running."],
  restored: ["live", "Sandbox", "The sandbox of this conversation is running, with its files restored."],
  paused: ["paused", "Sandbox paused", "The sandbox is paused. The next tool wakes it up."],
  killed: ["off", "Sandbox off", "The sandbox is off. The next tool restores its files in a new one."],
  lost: ["lost", "Sandbox lost", "The sandbox was lost. The next tool restores its last checkpoint."],
};

export function SandboxBadge({ state }: { readonly state: State | null | undefined }): ReactNode {
  if (state == null) return null;
  const [tone, words, meaning] = HEADER[state] ?? [];
  return (
    words !== undefined && (
      <span className={`sandbox-badge is-${tone}`} title={meaning}>
        {words}
      </span>
    )
  );
}

/** In the transcript, while the answer continues. A new sandbox is not worth a note. */
const NOTES: Readonly<Partial<Record<State, string>>> = {
  resumed: "The sandbox is running again.",
  restored: "The sandbox was restored from its last checkpoint.",
  lost: "The sandbox was lost. A new one will start.",
};

export function SandboxNote({ state }: { readonly state: State | null | undefined }): ReactNode {
  const words = state == null ? undefined : NOTES[state];
  return words === undefined ? null : <p className="system-note">{words}</p>;
}
