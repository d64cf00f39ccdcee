/** The text in the message field. It survives a reload; a tab saves only what was changed in it. */

import { useEffect, useEffectEvent, useRef, useState } from "react";
import { useUser } from "../user";
import { readDraft, saveDraft } from "./drafts";

const SAVE_AFTER_MS = 250;

export function useDraft(id: string | null): readonly [string, (text: string) => void] {
  const user = useUser();
  const [text, setText] = useState(() => readDraft(user, id));
  // Another tab may have a draft in the same conversation. A tab that did not touch it must not overwrite it.
  const isChanged = useRef(false);
  const save = useEffectEvent(() => {
    if (isChanged.current) saveDraft(user, id, text);
    isChanged.current = false;
  });
  const change = (text: string): void => {
    isChanged.current = text !== "";
    // Saved at once: a sent message is no longer a draft, and the conversation may get its id right after.
    if (text === "") saveDraft(user, id, "");
    setText(text);
  };
  useEffect(() => {
    const timer = setTimeout(save, SAVE_AFTER_MS);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    const leave = (): void => save();
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, []);

  // A new conversation keeps its draft when it gets its id.
  const [was, setWas] = useState(id);
  useEffect(() => {
    if (was !== null || id === null) return;
    setWas(id);
    if (readDraft(user, null) !== text) return;
    saveDraft(user, null, "");
    saveDraft(user, id, text);
  }, [user, was, id, text]);
  return [text, change];
}
