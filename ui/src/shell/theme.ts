/**
 * Light, dark, or the device's setting. `theme.js` applies the choice before the first paint, when the user is not
 * known yet, so it is stored per device and not per user.
 */

import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "outlast:theme";
const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };
const listeners = new Set<() => void>();

function current(): Theme {
  const theme = document.documentElement.dataset["theme"];
  return theme === "light" || theme === "dark" ? theme : "system";
}

export function useTheme(): readonly [Theme, () => void] {
  const theme = useSyncExternalStore(subscribe, current);
  return [theme, () => choose(NEXT[theme])];
}

function choose(theme: Theme): void {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Forgotten on reload.
  }
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
