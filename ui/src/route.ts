/** The current page of the app. It is kept in the address and nowhere else. */

import { useSyncExternalStore } from "react";

export type Route =
  | { readonly type: "new" }
  | { readonly type: "conversation"; readonly id: string }
  | { readonly type: "inspect"; readonly generationId: string };

export function parseRoute(path: string): Route {
  const [, kind, id] = /^\/(c|inspect)\/([^/]+)\/?$/.exec(path) ?? [];
  if (id === undefined) return { type: "new" };
  const decoded = decode(id);
  return kind === "c" ? { type: "conversation", id: decoded } : { type: "inspect", generationId: decoded };
}

export function pathTo(route: Route): string {
  switch (route.type) {
    case "new":
      return "/";
    case "conversation":
      return `/c/${encodeURIComponent(route.id)}`;
    case "inspect":
      return `/inspect/${encodeURIComponent(route.generationId)}`;
  }
}

const listeners = new Set<() => void>();

export function go(route: Route, how: "push" | "replace" = "push"): void {
  const path = pathTo(route);
  if (path === location.pathname) return;
  if (how === "push") history.pushState(null, "", path);
  else history.replaceState(null, "", path);
  for (const listener of listeners) listener();
}

export function useRoute(): Route {
  const path = useSyncExternalStore(subscribe, () => location.pathname);
  return parseRoute(path);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  addEventListener("popstate", listener);
  return () => {
    listeners.delete(listener);
    removeEventListener("popstate", listener);
  };
}

/** An address that was typed by hand may contain anything. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
