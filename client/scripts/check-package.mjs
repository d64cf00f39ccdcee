// Packs the package as npm would publish it, and checks the result with publint and attw.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = mkdtempSync(join(tmpdir(), "outlast-pack-"));
const run = (...command) => execFileSync("npx", ["--no-install", ...command], { stdio: "inherit" });
try {
  const packed = execFileSync("npm", ["pack", "--json", "--pack-destination", folder], { encoding: "utf8" });
  const [{ filename, files }] = JSON.parse(packed.slice(packed.indexOf("[")));
  const strange = files
    .map(({ path }) => path)
    .filter((path) => !/^(dist\/|README\.md|LICENSE-|package\.json)/.test(path));
  if (strange.length > 0) throw new Error(`these files do not belong in the package: ${strange.join(", ")}`);
  const tarball = join(folder, filename);
  run("publint", "run", tarball, "--strict");
  run("attw", tarball, "--profile", "esm-only");
} finally {
  rmSync(folder, { recursive: true, force: true });
}
