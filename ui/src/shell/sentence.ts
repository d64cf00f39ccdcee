/** What the server says in lower case and without a full stop, as a sentence. */

import { revealBidi } from "../markdown/invisible";

export function sentence(detail: string): string {
  const text = revealBidi(detail.trim());
  if (text === "") return "";
  const whole = text[0]?.toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}
