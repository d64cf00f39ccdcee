/** What a tool wrote: it follows the end while the reader is there, and holds only so much. */

import type { OutputPiece } from "@outlast/client";
import { useLayoutEffect, useRef, useState } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { endOf } from "./written";

/** Zoomed pages round, so this close counts as the end. */
const AT_END_PX = 4;

export interface ToolOutputProps {
  readonly pieces: readonly OutputPiece[];
  readonly label: string;
}

export function ToolOutput({ pieces, label }: ToolOutputProps): ReactNode {
  const [isWhole, setWhole] = useState(false);
  const written = endOf(pieces, isWhole ? Infinity : undefined);
  const box = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (box.current !== null && isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [pieces]);
  const scrolled = (element: HTMLPreElement): void => {
    const { scrollTop, scrollHeight, clientHeight } = element;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight <= AT_END_PX;
  };
  return (
    <>
      {written.hidden > 0 && (
        <p className="tool-cut">
          {written.hidden.toLocaleString("en")} earlier characters are not shown.{" "}
          <button type="button" className="link-button" onClick={() => setWhole(true)}>
            Show whole output
          </button>
        </p>
      )}
      <pre
        ref={box}
        className="tool-output"
        tabIndex={0}
        aria-label={label}
        onScroll={(event) => scrolled(event.currentTarget)}
      >
        {written.pieces.map(({ stream, text }, place) => (
          <span key={place} className={stream === "stderr" ? "is-stderr" : undefined}>
            {revealBidi(text)}
          </span>
        ))}
      </pre>
    </>
  );
}
