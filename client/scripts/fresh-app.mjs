// Installs the packed package into a new app, checks its types, builds it, and runs it in Node.
import { execFileSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const here = resolve(import.meta.dirname, "..");
const app = mkdtempSync(join(tmpdir(), "outlast-app-"));
const run = (command, ...args) => execFileSync(command, args, { cwd: app, stdio: "inherit" });

const files = {
  "package.json": JSON.stringify({ name: "app", private: true, type: "module" }),
  "tsconfig.json": JSON.stringify({
    compilerOptions: {
      strict: true,
      noEmit: true,
      jsx: "react-jsx",
      module: "ESNext",
      moduleResolution: "Bundler",
      target: "ES2022",
      lib: ["ES2022", "DOM"],
      types: [],
    },
    include: ["*.tsx"],
  }),
  "index.html": '<!doctype html><div id="root"></div><script type="module" src="/main.tsx"></script>',
  // The example that people copy from the README.
  "main.tsx": /```tsx\n([\s\S]*?)```/.exec(readFileSync(join(here, "README.md"), "utf8"))[1],
  "side.tsx": `
import { useConversations, useGeneration } from "@outlast/client/react";
export function Side() {
  const { conversations } = useConversations();
  const { generation } = useGeneration(conversations[0]?.id ?? null);
  return <aside>{generation?.status}</aside>;
}
`,
  "node.mjs": `
import { OutlastClient, emptyView } from "@outlast/client";
import { conversationList } from "@outlast/client/list";
const client = new OutlastClient({ baseUrl: "http://127.0.0.1:9" });
if (emptyView("c", "").lastSeq !== 0 || conversationList(client).snapshot().isLoading !== true) process.exit(1);
console.log("the package works in Node " + process.version);
`,
};

try {
  execFileSync("npm", ["pack", "--silent", "--pack-destination", app], {
    cwd: here,
    stdio: ["ignore", "ignore", "inherit"],
  });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(app, name), text);
  const tarball = readdirSync(app).find((name) => name.endsWith(".tgz"));
  run(
    "npm",
    "install",
    "--offline",
    "--no-audit",
    "--no-fund",
    "--silent",
    "--legacy-peer-deps",
    `./${tarball}`,
  );
  // Everything else comes from this folder's node_modules, so that no network is needed.
  for (const name of ["react", "react-dom", "vite", "typescript"]) link(name);
  mkdirSync(join(app, "node_modules/@types"), { recursive: true });
  for (const name of ["@types/react", "@types/react-dom"]) link(name);
  run("node", "node.mjs");
  run("node", join(here, "node_modules/typescript/bin/tsc"), "-p", ".");
  run("node", join(here, "node_modules/vite/bin/vite.js"), "build", "--logLevel", "warn");
  const assets = readdirSync(join(app, "dist/assets"));
  console.log(`the app was built: ${assets.join(", ")}`);
} finally {
  rmSync(app, { recursive: true, force: true });
}

function link(name) {
  symlinkSync(join(here, "node_modules", name), join(app, "node_modules", name));
}
