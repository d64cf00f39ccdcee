/** The text in the field. It outlives a reload, and only what was changed here is written down. */

import { useEffect, useEffectEvent, useRef, useState } from "react";
import { readDraft, saveDraft } from "./drafts";

const SAVE_AFTER_MS = 250;

export function useDraft(id: string | null): readonly [string, (text: string) => void] {
  const [text, setText] = useState(() => readDraft(id));
  // Another tab may write in the same conversation: what was not touched here is not this tab's to keep or clear.
  const isChanged = useRef(false);
  const store = useEffectEvent(() => {
    if (isChanged.current) saveDraft(id, text);
    isChanged.current = false;
  });
  const change = (text: string): void => {
    isChanged.current = text !== "";
    // At once: what was sent is no draft, and the conversation may be given its id in the next moment.
    if (text === "") saveDraft(id, "");
    setText(text);
  };
  useEffect(() => {
    const timer = setTimeout(store, SAVE_AFTER_MS);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    const leave = (): void => store();
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, []);

  // A new conversation takes its draft along when it gets its id.
  const [was, setWas] = useState(id);
  useEffect(() => {
    if (was !== null || id === null) return;
    setWas(id);
    if (readDraft(null) !== text) return;
    saveDraft(null, "");
    saveDraft(id, text);
  }, [was, id, text]);
  return [text, change];
}
