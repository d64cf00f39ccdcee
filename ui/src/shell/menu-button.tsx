import type { ReactNode } from "react";
import { Icon } from "./icon";

/** Opens the list of conversations on narrow screens. */
export function MenuButton({ onClick }: { readonly onClick: () => void }): ReactNode {
  return (
    <button
      type="button"
      className="icon-button only-narrow"
      aria-label="Show conversations"
      onClick={onClick}
    >
      <Icon name="menu" />
    </button>
  );
}
