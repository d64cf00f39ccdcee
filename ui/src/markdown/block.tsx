/** One block of Markdown as elements. */

import type { Token, Tokens } from "marked";
import { createElement, memo } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "./invisible";
import { CodeBlock } from "./code-block";
import { MAX_DEPTH, plain, renderInline } from "./inline";
import { lexBlock } from "./lex";

/** Memoised by its text: a block that does not change is parsed once. */
export const MarkdownBlock = memo(function MarkdownBlock({ text }: { readonly text: string }): ReactNode {
  const tokens = lexBlock(text);
  return tokens === null ? <p className="md-plain">{revealBidi(text)}</p> : renderBlocks(tokens, 0);
});

function renderBlocks(tokens: readonly Token[] | undefined, depth: number): ReactNode {
  return tokens?.map((token, place) => <Block key={place} token={token} depth={depth} />);
}

function Block({ token, depth }: { readonly token: Token; readonly depth: number }): ReactNode {
  if (depth > MAX_DEPTH) return plain(token.raw);
  switch (token.type) {
    case "space":
      return null;
    case "paragraph":
      return <p dir="auto">{renderInline((token as Tokens.Paragraph).tokens, depth)}</p>;
    case "text": {
      // The text of an item in a tight list.
      const { tokens, text } = token as Tokens.Text;
      return tokens === undefined ? plain(text) : renderInline(tokens, depth);
    }
    case "heading": {
      const heading = token as Tokens.Heading;
      // The page's own heading ranks above these.
      const level = `h${Math.min(6, heading.depth + 1)}`;
      return createElement(level, { dir: "auto" }, renderInline(heading.tokens, depth));
    }
    case "code": {
      const { lang, text } = token as Tokens.Code;
      return <CodeBlock info={lang ?? ""} text={text} />;
    }
    case "blockquote":
      return (
        <blockquote dir="auto">{renderBlocks((token as Tokens.Blockquote).tokens, depth + 1)}</blockquote>
      );
    case "list":
      return <List list={token as Tokens.List} depth={depth} />;
    case "table":
      return <Table table={token as Tokens.Table} depth={depth} />;
    case "hr":
      return <hr />;
    default:
      return <p dir="auto">{renderInline([token], depth)}</p>;
  }
}

function List({ list, depth }: { readonly list: Tokens.List; readonly depth: number }): ReactNode {
  const items = list.items.map((item, place) => (
    <li key={place} dir="auto" className={item.task ? "md-task" : undefined}>
      {item.task && <input type="checkbox" checked={item.checked === true} disabled aria-label="Task" />}
      {renderBlocks(item.tokens, depth + 1)}
    </li>
  ));
  return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function Table({ table, depth }: { readonly table: Tokens.Table; readonly depth: number }): ReactNode {
  const style = (place: number) => ({ textAlign: table.align[place] ?? undefined });
  return (
    <div className="md-table" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {table.header.map((cell, place) => (
              <th key={place} scope="col" style={style(place)}>
                {renderInline(cell.tokens, depth)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, line) => (
            <tr key={line}>
              {row.map((cell, place) => (
                <td key={place} style={style(place)}>
                  {renderInline(cell.tokens, depth)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
