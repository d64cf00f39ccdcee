/** For actions whose failure is in the conversation's snapshot, where it is shown. */
export function quietly(action: Promise<unknown>): void {
  action.catch(() => {});
}
