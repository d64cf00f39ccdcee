/** The current page of the app. It is kept in the address and nowhere else. */

import { useSyncExternalStore } from "react";

export type Route =
  | { readonly type: "new" }
  | { readonly type: "operate" }
  | { readonly type: "conversation"; readonly id: string }
  | { readonly type: "inspect"; readonly generationId: string }
  /** The link of a notification that waits for a decision. */
  | { readonly type: "approve"; readonly id: string };

export function parseRoute(path: string): Route {
  if (/^\/operate\/?$/.test(path)) return { type: "operate" };
  const [, kind, id] = /^\/(c|inspect|approve)\/([^/]+)\/?$/.exec(path) ?? [];
  if (id === undefined) return { type: "new" };
  const decoded = decode(id);
  if (kind === "inspect") return { type: "inspect", generationId: decoded };
  return { type: kind === "c" ? "conversation" : "approve", id: decoded };
}

export function pathTo(route: Route): string {
  switch (route.type) {
    case "new":
      return "/";
    case "operate":
      return "/operate";
    case "conversation":
      return `/c/${encodeURIComponent(route.id)}`;
    case "inspect":
      return `/inspect/${encodeURIComponent(route.generationId)}`;
    case "approve":
      return `/approve/${encodeURIComponent(route.id)}`;
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
