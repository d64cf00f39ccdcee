/** Lets something fail without a word here: the conversation's snapshot says what went wrong. */
export function quietly(action: Promise<unknown>): void {
  action.catch(() => {});
}
