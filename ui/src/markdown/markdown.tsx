/** Markdown that may still be streaming. */

import { memo, useState } from "react";
import type { ReactNode } from "react";
import { MarkdownBlock } from "./block";
import { CodeBlock } from "./code-block";
import { mend } from "./mend";
import { BlockSplitter } from "./split";
import type { Block } from "./split";
import "./markdown.css";

/** Blocks that are compared, laid out and skipped as one. */
const GROUP = 16;

export interface MarkdownProps {
  readonly text: string;
  readonly isStreaming: boolean;
}

export const Markdown = memo(function Markdown({ text, isStreaming }: MarkdownProps): ReactNode {
  // Only a cache: the result depends on the text alone.
  const [splitter] = useState(() => new BlockSplitter());
  const blocks = splitter.split(text);
  const groups: ReactNode[] = [];
  for (let from = 0; from < blocks.length; from += GROUP) {
    const isLast = from + GROUP >= blocks.length;
    groups.push(
      <Group key={from} blocks={blocks.slice(from, from + GROUP)} isStreaming={isStreaming && isLast} />,
    );
  }
  return <div className="md">{groups}</div>;
});

interface GroupProps {
  readonly blocks: readonly Block[];
  /** Whether the last block is being written. */
  readonly isStreaming: boolean;
}

const Group = memo(function Group({ blocks, isStreaming }: GroupProps): ReactNode {
  return (
    <div className="md-group">
      {blocks.map((block, place) => (
        <div className="md-block" key={place}>
          {renderBlock(block, isStreaming && place === blocks.length - 1)}
        </div>
      ))}
    </div>
  );
}, isSameGroup);

function renderBlock(block: Block, isStreaming: boolean): ReactNode {
  if (block.type === "code") return <CodeBlock info={block.info} text={block.text} />;
  return <MarkdownBlock text={isStreaming ? mend(block.text) : block.text} />;
}

function isSameGroup(before: GroupProps, now: GroupProps): boolean {
  return (
    before.isStreaming === now.isStreaming &&
    before.blocks.length === now.blocks.length &&
    before.blocks.every((block, place) => block === now.blocks[place])
  );
}
