/** Turns the server's error text, which is in lower case and has no full stop, into a sentence. */

import { revealBidi } from "../markdown/invisible";

export function sentence(detail: string): string {
  const text = revealBidi(detail.trim());
  if (text === "") return "";
  const whole = text[0]?.toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}
