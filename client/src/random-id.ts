/** A random id. Pages without TLS have no `randomUUID`, but they have `getRandomValues`. */
export function randomId(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}
