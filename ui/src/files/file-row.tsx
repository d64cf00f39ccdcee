/** One file: its path, what happened to it, and on request what changed in it. */

import type { WorkspaceFile } from "@outlast/client";
import { useEffect, useRef, useState } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Icon } from "../shell/icon";
import type { FileDiff } from "./diff";
import { DiffView } from "./diff-view";
import { fileHref, sizeOf } from "./file-text";

export interface FileRowProps {
  readonly conversationId: string;
  readonly file: WorkspaceFile;
  /** Null where nothing is compared. */
  readonly diff: FileDiff | null;
  /** Whether a person asked for this one: then it is open and in view. */
  readonly isFirst: boolean;
}

export function FileRow({ conversationId, file, diff, isFirst }: FileRowProps): ReactNode {
  const [isOpen, setOpen] = useState(isFirst);
  const row = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (isFirst) row.current?.scrollIntoView({ block: "start" });
  }, [isFirst]);
  const { path, size, change, description } = file;
  const name = revealBidi(path);
  return (
    <li ref={row} className="file-row">
      <div className="file-head">
        {diff === null ? (
          <bdi className="file-path">{name}</bdi>
        ) : (
          <button
            type="button"
            className="file-toggle"
            aria-expanded={isOpen}
            onClick={() => setOpen(!isOpen)}
          >
            <Icon name="chevron" />
            <bdi className="file-path">{name}</bdi>
          </button>
        )}
        {change !== null && <span className={`file-change is-${change}`}>{change}</span>}
        <span className="file-size">{sizeOf(size)}</span>
        {change !== "deleted" && (
          <a
            className="icon-button"
            href={fileHref(conversationId, path)}
            download
            aria-label={`Download ${name}`}
            title="Download"
          >
            <Icon name="download" />
          </a>
        )}
      </div>
      {description !== null && description !== "" && (
        <p className="file-description">{revealBidi(description)}</p>
      )}
      {isOpen && diff !== null && <DiffView path={name} lines={diff.lines} />}
    </li>
  );
}
