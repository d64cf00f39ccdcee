/**
 * On a touch device Enter inserts a new line, and no field is focused by itself, because the on-screen keyboard would
 * cover half the page.
 */
export const isTouch = matchMedia("(hover: none) and (pointer: coarse)").matches;
