import { useState } from "react";
import type { FormEvent, ReactNode } from "react";

export interface RenameFieldProps {
  readonly title: string;
  readonly onRename: (title: string) => Promise<unknown>;
  readonly onClose: () => void;
}

/** Enter or leaving the field renames; Escape leaves everything as it was. */
export function RenameField({ title, onRename, onClose }: RenameFieldProps): ReactNode {
  const [text, setText] = useState(title);
  const [failed, setFailed] = useState(false);
  const finish = async (): Promise<void> => {
    const name = text.trim();
    if (name === "" || name === title) return onClose();
    await onRename(name).then(onClose, () => setFailed(true));
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    void finish();
  };
  return (
    <form className="rename" onSubmit={submit}>
      <input
        autoFocus
        aria-label="New name"
        aria-invalid={failed}
        maxLength={200}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onFocus={(event) => event.target.select()}
        onBlur={() => void finish()}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.stopPropagation();
          onClose();
        }}
      />
    </form>
  );
}
