/** Keyboard shortcuts that work on every page. */

import { useEffect, useEffectEvent } from "react";

export interface Shortcuts {
  readonly search: () => void;
  readonly newChat: () => void;
}

export function useShortcuts({ search, newChat }: Shortcuts): void {
  const press = useEffectEvent((event: KeyboardEvent) => {
    if (!(event.metaKey || event.ctrlKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key === "k" && !event.shiftKey) search();
    else if (key === "o" && event.shiftKey) newChat();
    else return;
    event.preventDefault();
  });
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => press(event);
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}
