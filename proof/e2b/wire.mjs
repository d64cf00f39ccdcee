// What both halves of the stand-in need to speak HTTP.

/** The folder of the user in a sandbox. */
export const HOME = ["", "home", "user"].join("/");

export async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export function json(response, status, value, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(value));
}

/** An error as the control API and the files half give it: the status again, as a number. */
export function fail(response, status, message, more = {}, headers = {}) {
  json(response, status, { code: status, message, ...more }, headers);
}

/** The files of a form. A file name keeps its folders: SDKs send the whole path in it. */
export function partsOf(body, type) {
  const boundary = `--${/boundary="?([^";]+)"?/.exec(type)[1]}`;
  const parts = [];
  let from = body.indexOf(boundary);
  for (;;) {
    const next = body.indexOf(`\r\n${boundary}`, from);
    if (next < 0) return parts;
    const part = body.subarray(from + boundary.length + 2, next);
    const head = part.indexOf("\r\n\r\n");
    const filename = /filename="([^"]*)"/.exec(part.subarray(0, head).toString())?.[1];
    parts.push({ filename, content: part.subarray(head + 4) });
    from = next + 2;
  }
}
