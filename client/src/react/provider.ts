import { createContext, createElement, useContext } from "react";
import type { ReactElement, ReactNode } from "react";
import type { OutlastClient } from "../client.js";

const Context = createContext<OutlastClient | null>(null);

export interface OutlastProviderProps {
  readonly client: OutlastClient;
  readonly children?: ReactNode;
}

/** Create the client once, outside of components; with server-side rendering, once per request. */
export function OutlastProvider({ client, children }: OutlastProviderProps): ReactElement {
  return createElement(Context.Provider, { value: client }, children);
}

export function useOutlast(): OutlastClient {
  const client = useContext(Context);
  if (client === null) throw new Error("useOutlast must be used inside <OutlastProvider client={…}>");
  return client;
}
