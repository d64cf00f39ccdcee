import { useState } from "react";
import type { FormEvent, ReactNode } from "react";
import { NO_TITLE } from "./title";

export interface RenameFieldProps {
  readonly title: string | null;
  /** Null clears the title. */
  readonly onRename: (title: string | null) => Promise<unknown>;
  readonly onClose: () => void;
}

/** Enter and leaving the field rename; an empty name clears the title; Escape changes nothing. */
export function RenameField({ title, onRename, onClose }: RenameFieldProps): ReactNode {
  const [text, setText] = useState(title ?? "");
  const [failed, setFailed] = useState(false);
  const finish = async (): Promise<void> => {
    const name = text.trim() === "" ? null : text.trim();
    if (name === title) return onClose();
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
        title="Leave empty to clear the name"
        placeholder={NO_TITLE}
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
