/** A name that nobody else makes up. Pages without TLS have no `randomUUID`, but they have random bytes. */
export function randomId(): string {
  return (
    crypto.randomUUID?.() ??
    Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join("-")
  );
}
