/** The icons, drawn on a 24 × 24 grid. */

import type { ReactNode } from "react";

const PATHS = {
  bell: "M6 16V11a6 6 0 0 1 12 0v5l1.5 2h-15zM10 20.5a2.2 2.2 0 0 0 4 0",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  search: "M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14zM16.2 16.2L20 20",
  pencil: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  send: "M12 19V6M6 11.5L12 5.5l6 6",
  stop: "M8 8h8v8H8z",
  down: "M12 5v13M6 12.5l6 6 6-6",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6l1.5 1.5M16.9 16.9l1.5 1.5M18.4 5.6l-1.5 1.5M7.1 16.9l-1.5 1.5",
  moon: "M19.5 14.2A8 8 0 0 1 9.8 4.5a8 8 0 1 0 9.7 9.7z",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  chevron: "M9 6l6 6-6 6",
  inspect: "M4 18l4-6 4 3 4-8 4 5",
  queue: "M5 7h14M5 12h9M5 17h9M17.5 14v6M14.5 17h6",
  interrupt: "M6 6v5a3 3 0 0 0 3 3h9M14 10l4 4-4 4",
  tool: "M14.5 6.5a4 4 0 0 0-5 5L4 17l3 3 5.5-5.5a4 4 0 0 0 5-5L15 12l-3-3z",
  picture: "M4 5h16v14H4zM4 16l5-5 4 4 2-2 5 4M15.5 9.5h.01",
  play: "M8 5l11 7-11 7z",
  pause: "M8 5v14M16 5v14",
  back: "M19 12H5M11 6l-6 6 6 6",
  file: "M7 3h7l5 5v13H7zM14 3v5h5",
  folder: "M3 6h6l2 2h10v11H3z",
  download: "M12 4v11M6.5 10l5.5 5.5L17.5 10M5 20h14",
  alert: "M12 4l9 16H3zM12 10v4.5M12 17v.5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }): ReactNode {
  return (
    <svg className={`icon icon-${name}`} viewBox="0 0 24 24" width="18" height="18" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
