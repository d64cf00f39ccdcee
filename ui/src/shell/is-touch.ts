/** Where there is no keyboard, Enter is the only way to a new line, and a field with the focus hides half the page. */
export const isTouch = matchMedia("(hover: none) and (pointer: coarse)").matches;
