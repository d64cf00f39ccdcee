/**
 * Generates `sw.js` from the template and the list of built files. The cache is named after their hash, so that a
 * new build gets a new cache and the old one is deleted.
 */

import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import type { Plugin } from "vite";

const TEMPLATE = new URL("./sw.template.js", import.meta.url);
const PUBLIC = new URL("../public/", import.meta.url);

export function serviceWorker(): Plugin {
  return {
    name: "outlast-service-worker",
    apply: "build",
    // After Vite has removed chunks that hold nothing but styles: a file that is missing would make the cache fail.
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        const built = Object.keys(bundle).filter((name) => name.startsWith("assets/"));
        const files = ["/", ...[...built, ...readdirSync(PUBLIC)].map((name) => `/${name}`)].sort();
        const content = Object.values(bundle).map((file) =>
          file.type === "chunk" ? file.code : file.source,
        );
        const hash = createHash("sha256");
        for (const piece of [...files, ...content]) hash.update(piece);
        const source = readFileSync(TEMPLATE, "utf8")
          .replace('"%VERSION%"', JSON.stringify(hash.digest("hex").slice(0, 12)))
          .replace('["%FILES%"]', JSON.stringify(files));
        this.emitFile({ type: "asset", fileName: "sw.js", source });
      },
    },
  };
}
