/** The user of this page. What a browser stores for one user must not be shown to the next. */

import { useCapabilities } from "@outlast/client/react";
import { createContext, Fragment, useContext } from "react";
import type { ReactNode } from "react";

/** The user of a server that does not name one. */
const NOBODY_NAMED = "local";
const UserContext = createContext(NOBODY_NAMED);

/** Renders everything from scratch for another user, so that their drafts and choices are read. */
export function UserProvider({ children }: { readonly children: ReactNode }): ReactNode {
  const user = useCapabilities()?.user ?? NOBODY_NAMED;
  return (
    <UserContext value={user}>
      <Fragment key={user}>{children}</Fragment>
    </UserContext>
  );
}

export function useUser(): string {
  return useContext(UserContext);
}
