// Verifies one delivery with the library for Node: {secret, headers, body} on standard input.
import { readFileSync } from "node:fs";
import { Webhook } from "standardwebhooks";

const { secret, headers, body } = JSON.parse(readFileSync(0, "utf8"));
new Webhook(secret).verify(body, headers);
