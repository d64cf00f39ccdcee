/** Asks before a conversation is deleted. */

import { useEffect, useRef, useState } from "react";
import type { ReactNode } from "react";

export interface DeleteDialogProps {
  readonly title: string;
  readonly onDelete: () => Promise<void>;
  readonly onClose: () => void;
}

/** Closed by its own method rather than unmounted, so that the browser restores the focus. */
export function DeleteDialog({ title, onDelete, onClose }: DeleteDialogProps): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const [failed, setFailed] = useState<string | null>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const close = (): void => dialog.current?.close();
  const remove = async (): Promise<void> => {
    await onDelete().then(close, (error: unknown) =>
      setFailed(error instanceof Error ? error.message : "unknown error"),
    );
  };
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby="delete-title" onClose={onClose}>
      <h2 id="delete-title">Delete this conversation?</h2>
      <p>
        <bdi>“{title}”</bdi> and all its messages will be deleted. An answer in progress stops.
      </p>
      {failed !== null && <p role="alert">Could not delete the conversation: {failed}.</p>}
      <div className="dialog-buttons">
        <button type="button" className="button" autoFocus onClick={close}>
          Cancel
        </button>
        <button type="button" className="button button-danger" onClick={() => void remove()}>
          Delete
        </button>
      </div>
    </dialog>
  );
}
