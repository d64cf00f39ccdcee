/** Text with every invisible character shown, set apart from text that only looks like one. */

import { useMemo } from "react";
import type { ReactNode } from "react";
import { revealAll } from "./invisible";

export function Revealed({ text }: { readonly text: string }): ReactNode {
  const pieces = useMemo(() => revealAll(text), [text]);
  return pieces.map(({ text, isMark }, place) =>
    isMark ? (
      <mark key={place} className="invisible-character">
        {text}
      </mark>
    ) : (
      text
    ),
  );
}
