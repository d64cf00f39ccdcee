/** curl commands that a person copies into a shell. */

export function curlEvents(origin: string, generationId: string): string {
  return `curl -N ${quote(`${origin}/v1/generations/${encodeURIComponent(generationId)}/events`)}`;
}

export function curlGeneration(origin: string, generationId: string): string {
  return `curl -s ${quote(`${origin}/v1/generations/${encodeURIComponent(generationId)}`)}`;
}

/**
 * Quotes text as one word for any POSIX shell. Within single quotes only a single quote is special, and
 * `encodeURIComponent` does not encode it. So each one closes the quotes, is escaped, and opens them again.
 */
export function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
