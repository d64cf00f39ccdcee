import type { ReactNode } from "react";

export function Logo(): ReactNode {
  return (
    <svg className="logo" viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <path d="M16 4a12 12 0 1 0 12 12" />
      <circle cx="24.5" cy="7.5" r="3.2" />
    </svg>
  );
}
