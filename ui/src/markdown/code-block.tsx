/** A code block with its language and a copy button. */

import { memo } from "react";
import type { ReactNode } from "react";
import { CopyButton } from "../shell/copy-button";
import { revealBidi } from "./invisible";
import { codePieces } from "./code-pieces";

export interface CodeBlockProps {
  readonly info: string;
  readonly text: string;
}

export const CodeBlock = memo(function CodeBlock({ info, text }: CodeBlockProps): ReactNode {
  const language = /^[\w+#.-]{1,24}/.exec(info)?.[0] ?? "";
  return (
    <figure className="md-code">
      <figcaption>
        <span>{language || "code"}</span>
        <CopyButton text={text} label="Copy code" />
      </figcaption>
      <pre tabIndex={0} aria-label={language ? `Code, ${language}` : "Code"} dir="ltr">
        <code>
          {codePieces(text).map((piece, place) => (
            <Piece key={place} text={piece} />
          ))}
        </code>
      </pre>
    </figure>
  );
});

/** While code streams, only its last piece is laid out again. */
const Piece = memo(function Piece({ text }: { readonly text: string }): ReactNode {
  return <span className="md-code-piece">{revealBidi(text)}</span>;
});
