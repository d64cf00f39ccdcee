import type { ReactNode } from "react";
import { Icon } from "./icon";
import type { IconName } from "./icon";
import { useTheme } from "./theme";
import type { Theme } from "./theme";

const ICONS: Readonly<Record<Theme, IconName>> = { system: "auto", light: "sun", dark: "moon" };

export function ThemeToggle(): ReactNode {
  const [theme, next] = useTheme();
  const label = `Theme: ${theme}`;
  return (
    <button type="button" className="icon-button" aria-label={label} title={label} onClick={next}>
      <Icon name={ICONS[theme]} />
    </button>
  );
}
