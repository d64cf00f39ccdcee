/** Makes a client known to the components below. */

import { createContext, createElement, useContext } from "react";
import type { ReactElement, ReactNode } from "react";
import type { OutlastClient } from "../client.js";

const Context = createContext<OutlastClient | null>(null);

export interface OutlastProviderProps {
  readonly client: OutlastClient;
  readonly children?: ReactNode;
}

/** Make the client once, outside of components, or once for each request where pages are rendered on a server. */
export function OutlastProvider({ client, children }: OutlastProviderProps): ReactElement {
  return createElement(Context.Provider, { value: client }, children);
}

/** The client that the provider above was given. */
export function useOutlast(): OutlastClient {
  const client = useContext(Context);
  if (client === null) throw new Error("useOutlast needs an <OutlastProvider client={…}> above it");
  return client;
}
