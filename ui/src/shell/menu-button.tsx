import type { ReactNode } from "react";
import { Count } from "../notifications/bell";
import { useNotifications } from "../notifications/use-notifications";
import { Icon } from "./icon";

/** Opens the list of conversations on narrow screens, where the bell is too. */
export function MenuButton({ onClick }: { readonly onClick: () => void }): ReactNode {
  const { unread } = useNotifications();
  const news = unread === 0 ? "" : `, ${unread} unread notifications`;
  return (
    <button
      type="button"
      className="icon-button only-narrow menu-with-count"
      aria-label={`Show conversations${news}`}
      onClick={onClick}
    >
      <Icon name="menu" />
      <Count unread={unread} />
    </button>
  );
}
