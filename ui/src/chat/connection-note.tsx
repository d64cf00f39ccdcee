/** The state of the connection, in a few words, and only when it matters. */

import type { Connection } from "@outlast/client";
import { useCapabilities } from "@outlast/client/react";
import { useEffect, useRef, useState } from "react";
import type { ReactNode } from "react";
import { announce } from "../shell/announcer";

/** A connection that is restored sooner than this is not mentioned. */
const PATIENCE_MS = 700;
const CAUGHT_UP_MS = 3_000;

export interface ConnectionNoteProps {
  readonly connection: Connection;
  readonly onRetry: () => void;
}

type Note = "lost" | "offline" | "catching_up" | "caught_up" | "refused";

const WORDS: Readonly<Record<Note, string>> = {
  lost: "Connection lost. Reconnecting…",
  offline: "You are offline.",
  catching_up: "Catching up…",
  caught_up: "Reconnected and up to date",
  refused: "The server refused the connection.",
};
/** Shown only if the server has background mode. */
const IN_BACKGROUND = " The server continues without you.";

export function ConnectionNote({ connection, onRetry }: ConnectionNoteProps): ReactNode {
  const isBackground = useCapabilities()?.background === true;
  const note = useNote(connection);
  if (note === null) return <span className="connection-note" />;
  const canRetry = note === "lost" || note === "refused";
  return (
    <span className={`connection-note is-${note}`}>
      <span className="connection-words">
        {WORDS[note]}
        {note === "offline" && isBackground && IN_BACKGROUND}
      </span>
      {canRetry && (
        <button type="button" className="link-button" onClick={onRetry}>
          Retry now
        </button>
      )}
    </span>
  );
}

function useNote(connection: Connection): Note | null {
  const [note, setNote] = useState<Note | null>(null);
  const wasLost = useRef(false);
  const next = noteFor(connection);
  useEffect(() => {
    if (next === "live") {
      if (!wasLost.current) return;
      wasLost.current = false;
      setNote("caught_up");
      announce(WORDS.caught_up);
      const timer = setTimeout(() => setNote(null), CAUGHT_UP_MS);
      return () => clearTimeout(timer);
    }
    // While connecting, the note stays as it was until the outcome is known.
    if (next === null) return;
    const timer = setTimeout(() => {
      if (next === "catching_up" && !wasLost.current) return;
      if (next !== "catching_up") wasLost.current = true;
      setNote(next);
      if (next === "offline" || next === "lost") announce(WORDS[next]);
    }, delayFor(next));
    return () => clearTimeout(timer);
  }, [next]);
  return note;
}

function delayFor(note: Note): number {
  return note === "refused" || note === "catching_up" ? 0 : PATIENCE_MS;
}

function noteFor(connection: Connection): Note | "live" | null {
  switch (connection.type) {
    case "idle":
    case "connecting":
      return null;
    case "catching_up":
      return "catching_up";
    case "live":
      return "live";
    case "offline":
      return "offline";
    case "waiting":
      // A hidden page closes its connection on purpose, which needs no note.
      return connection.because === "hidden" ? null : "lost";
    case "ended":
      return connection.error === null ? null : "refused";
  }
}
