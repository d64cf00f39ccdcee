/** What changed in one file. */

import { useState } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import type { DiffLine } from "./diff";

/** Lines in the page until a person asks for all of them. */
const SHOWN_LINES = 300;

const MARKS: Readonly<Record<DiffLine["kind"], string>> = {
  added: "+",
  removed: "−",
  same: " ",
  place: "",
  note: "",
};

export interface DiffViewProps {
  readonly path: string;
  readonly lines: readonly DiffLine[];
}

export function DiffView({ path, lines }: DiffViewProps): ReactNode {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? lines : lines.slice(0, SHOWN_LINES);
  if (lines.length === 0) return <p className="files-note">Only the file’s permissions changed.</p>;
  return (
    <>
      <pre className="diff" tabIndex={0} aria-label={`Changes in ${path}`}>
        {shown.map(({ kind, text }, place) => (
          <span key={place} className={`diff-line is-${kind}`}>
            <span className="diff-mark">{MARKS[kind]}</span>
            {revealBidi(text)}
            {"\n"}
          </span>
        ))}
      </pre>
      {shown.length < lines.length && (
        <button type="button" className="link-button" onClick={() => setWhole(true)}>
          Show all {lines.length.toLocaleString("en")} lines
        </button>
      )}
    </>
  );
}
