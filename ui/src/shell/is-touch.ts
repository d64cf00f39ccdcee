/** Without a keyboard, Enter must insert a new line, and a focused field covers half the page. */
export const isTouch = matchMedia("(hover: none) and (pointer: coarse)").matches;
