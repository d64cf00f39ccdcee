/** The files that an answer changed, below its text. */

import { useContext } from "react";
import type { ReactNode } from "react";
import { revealBidi } from "../markdown/invisible";
import { Icon } from "../shell/icon";
import { OpenFiles } from "./files-context";
import type { DescribedFile } from "./files-summary";

export interface ChangedFilesProps {
  readonly files: readonly DescribedFile[];
  readonly generationId: string | null;
}

export function ChangedFiles({ files, generationId }: ChangedFilesProps): ReactNode {
  const open = useContext(OpenFiles);
  return (
    <section className="changed-files" aria-label="Changed files">
      <h3>
        {files.length} {files.length === 1 ? "file" : "files"} changed
      </h3>
      <ul>
        {files.map(({ path, description }) => (
          <li key={path}>
            <button
              type="button"
              className="changed-file"
              onClick={() => open({ since: generationId, path })}
            >
              <Icon name="file" />
              <bdi className="file-path">{revealBidi(path)}</bdi>
              <bdi className="file-description">{revealBidi(description)}</bdi>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
