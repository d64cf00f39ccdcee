/** How any part of a conversation opens the panel of files. */

import { createContext } from "react";

export interface FilesAsked {
  /** Compares with the state before this generation; null for the workspace as it is. */
  readonly since: string | null;
  /** The file to show first. */
  readonly path: string | null;
}

export const OpenFiles = createContext<(asked: FilesAsked) => void>(() => {});
