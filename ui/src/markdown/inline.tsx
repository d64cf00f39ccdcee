/** Inline Markdown: emphasis, links, code. */

import type { Token, Tokens } from "marked";
import type { ReactNode } from "react";
import { Icon } from "../shell/icon";
import { revealBidi } from "./invisible";
import { decodeEntities } from "./entities";
import { safeUrl } from "./safe-url";

/** Deeper nesting is shown as plain text. */
export const MAX_DEPTH = 12;

export function renderInline(tokens: readonly Token[] | undefined, depth: number): ReactNode {
  return tokens?.map((token, place) => <Inline key={place} token={token} depth={depth} />);
}

/** The parser leaves character references in text. */
export function plain(text: string): string {
  return revealBidi(decodeEntities(text));
}

function Inline({ token, depth }: { readonly token: Token; readonly depth: number }): ReactNode {
  if (depth > MAX_DEPTH) return plain(token.raw);
  const inner = (): ReactNode => renderInline((token as Tokens.Generic).tokens, depth + 1);
  switch (token.type) {
    case "strong":
      return <strong>{inner()}</strong>;
    case "em":
      return <em>{inner()}</em>;
    case "del":
      return <del>{inner()}</del>;
    case "br":
      return <br />;
    case "codespan":
      return <code>{revealBidi((token as Tokens.Codespan).text)}</code>;
    case "link":
      return <Link address={(token as Tokens.Link).href}>{inner()}</Link>;
    case "image":
      return <Picture token={token as Tokens.Image} />;
    case "escape":
      return revealBidi((token as Tokens.Escape).text);
    case "text": {
      const text = token as Tokens.Text;
      return text.tokens === undefined ? plain(text.text) : inner();
    }
    default:
      return plain(token.raw);
  }
}

interface LinkProps {
  readonly address: string;
  readonly children: ReactNode;
}

function Link({ address, children }: LinkProps): ReactNode {
  const url = safeUrl(address);
  if (url === null) return <span className="md-dead-link">{children}</span>;
  // The text may say anything, so the title shows the real address.
  return (
    <a href={url} target="_blank" rel="noopener noreferrer nofollow" title={revealBidi(url)}>
      {children}
    </a>
  );
}

/** Loading a remote picture would tell its host who reads this, and when. It is a link instead. */
function Picture({ token }: { readonly token: Tokens.Image }): ReactNode {
  const label = plain(token.text).trim() || "Image";
  return (
    <span className="md-picture">
      <Icon name="picture" />
      <Link address={token.href}>{label}</Link>
    </span>
  );
}
