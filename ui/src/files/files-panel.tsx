/** The files of a conversation: what an answer changed, or the whole workspace. */

import { useEffect, useRef, useState } from "react";
import type { ReactNode } from "react";
import { Icon } from "../shell/icon";
import { sentence } from "../shell/sentence";
import { FileRow } from "./file-row";
import type { FilesAsked } from "./files-context";
import { useWorkspace } from "./use-workspace";
import type { Workspace } from "./use-workspace";

export interface FilesPanelProps {
  readonly conversationId: string;
  readonly asked: FilesAsked;
  /** The newest generation. Changes since an older one are not its own alone. */
  readonly newest: string | null;
  /** Changes when the files may have changed. */
  readonly version: string;
  readonly onClose: () => void;
}

/** Closed by its own method rather than unmounted, so that the browser restores the focus. */
export function FilesPanel({ conversationId, asked, newest, version, onClose }: FilesPanelProps): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const [since, setSince] = useState(asked.since);
  const workspace = useWorkspace({ conversationId, since, version });
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} className="files-panel" aria-labelledby="files-title" onClose={onClose}>
      <header className="files-head">
        <h2 id="files-title">
          {since === null ? "Files" : `Changes ${since === newest ? "in" : "since"} this answer`}
        </h2>
        {asked.since !== null && (
          <button
            type="button"
            className="quiet-button"
            onClick={() => setSince(since === null ? asked.since : null)}
          >
            {since === null ? "Show changes" : "Show all files"}
          </button>
        )}
        <button
          type="button"
          className="icon-button"
          aria-label="Close files"
          autoFocus
          onClick={() => dialog.current?.close()}
        >
          <Icon name="close" />
        </button>
      </header>
      <FileList conversationId={conversationId} since={since} first={asked.path} workspace={workspace} />
    </dialog>
  );
}

interface FileListProps {
  readonly conversationId: string;
  readonly since: string | null;
  readonly first: string | null;
  readonly workspace: Workspace;
}

function FileList({ conversationId, since, first, workspace }: FileListProps): ReactNode {
  const { files, diffs, error } = workspace;
  if (error !== null)
    return (
      <p className="files-note" role="alert">
        Could not load the files. {sentence(error)}
      </p>
    );
  if (files === null) return <p className="files-note">Loading…</p>;
  const shown = since === null ? files.data : files.data.filter(({ change }) => change !== null);
  if (shown.length === 0)
    return <p className="files-note">{since === null ? "There are no files." : "Nothing has changed."}</p>;
  return (
    <div className="files-list" tabIndex={0} role="region" aria-label="List of files">
      <ul>
        {shown.map((file) => (
          <FileRow
            key={`${since} ${file.path}`}
            conversationId={conversationId}
            file={file}
            diff={diffs.find(({ path }) => path === file.path) ?? null}
            isFirst={file.path === first}
          />
        ))}
      </ul>
      {files.nextCursor != null && (
        <p className="files-note">The first {shown.length.toLocaleString("en")} files are shown.</p>
      )}
    </div>
  );
}
