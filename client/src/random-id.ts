/** A name that nobody else makes up. Pages without TLS have no `randomUUID`, but they have random numbers. */
export function randomId(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}
