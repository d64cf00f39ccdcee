/** The same with curl. */

export function curlEvents(generationId: string): string {
  return `curl -N '${location.origin}/v1/generations/${encodeURIComponent(generationId)}/events'`;
}

export function curlGeneration(generationId: string): string {
  return `curl -s '${location.origin}/v1/generations/${encodeURIComponent(generationId)}'`;
}
