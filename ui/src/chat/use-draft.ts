/**
 * What was written and not sent outlives a reload, for each conversation. So does what was sent and did not
 * arrive: it is a draft again then.
 */

import { contentText } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useEffectEvent, useState } from "react";

const SAVE_AFTER_MS = 250;
/** A draft with the words of a message that is this young was sent, and only the answer was lost. */
const JUST_SENT_MS = 120_000;

export function useDraft(chat: UseConversation): readonly [string, (text: string) => void] {
  const [text, setText] = useState(() => load(chat.id));
  const { id, view } = chat;
  const unsent = chat.pending
    .filter(({ status }) => status !== "sent")
    .map(({ content }) => contentText(content))
    .join("\n\n");
  const kept = text.trim() === "" ? unsent : text;
  const store = useEffectEvent(() => save(id, kept));

  useEffect(() => {
    const timer = setTimeout(store, SAVE_AFTER_MS);
    return () => clearTimeout(timer);
  }, [id, kept]);
  useEffect(() => {
    const leave = (): void => store();
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, []);
  // A new conversation takes its draft along when it gets its id.
  const [wasNew] = useState(chat.id === null);
  useEffect(() => {
    if (wasNew && id !== null) save(null, "");
  }, [wasNew, id]);

  const last = view?.messages.findLast(({ role }) => role === "user");
  const [isChecked, setChecked] = useState(false);
  if (!isChecked && view !== null) {
    setChecked(true);
    const isFresh = last !== undefined && Date.now() - Date.parse(last.createdAt) < JUST_SENT_MS;
    if (isFresh && last.content.trim() === text.trim()) setText("");
  }
  return [text, setText];
}

function keyOf(id: string | null): string {
  return `outlast:draft:${id ?? "new"}`;
}

function load(id: string | null): string {
  try {
    return localStorage.getItem(keyOf(id)) ?? "";
  } catch {
    return "";
  }
}

function save(id: string | null, text: string): void {
  try {
    if (text.trim() === "") localStorage.removeItem(keyOf(id));
    else localStorage.setItem(keyOf(id), text);
  } catch {
    // Full or forbidden: then a reload forgets it.
  }
}
