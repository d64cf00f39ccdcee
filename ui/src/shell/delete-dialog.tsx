/** Asks before something is gone for good. */

import { useEffect, useRef, useState } from "react";
import type { ReactNode } from "react";

export interface DeleteDialogProps {
  readonly title: string;
  readonly onDelete: () => Promise<void>;
  readonly onClose: () => void;
}

/** It is closed rather than taken away, so that the browser gives the focus back to where it was. */
export function DeleteDialog({ title, onDelete, onClose }: DeleteDialogProps): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const [failed, setFailed] = useState<string | null>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const close = (): void => dialog.current?.close();
  const remove = async (): Promise<void> => {
    await onDelete().then(close, (error: unknown) =>
      setFailed(error instanceof Error ? error.message : "it failed"),
    );
  };
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby="delete-title" onClose={onClose}>
      <h2 id="delete-title">Delete this conversation?</h2>
      <p>
        <bdi>“{title}”</bdi> and all its messages will be gone. An answer under way is stopped.
      </p>
      {failed !== null && <p role="alert">It could not be deleted: {failed}.</p>}
      <div className="dialog-buttons">
        <button type="button" className="button" autoFocus onClick={close}>
          Keep
        </button>
        <button type="button" className="button button-danger" onClick={() => void remove()}>
          Delete
        </button>
      </div>
    </dialog>
  );
}
