/** Starts real servers on free loopback ports, and stops those it started. */

import { execFileSync, spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const binary = resolve(
  process.env["OUTLAST_BIN"] ?? fileURLToPath(new URL("../../../target/debug/outlast", import.meta.url)),
);

/** The model, unless the settings name one. */
const DEMO = { OUTLAST_MODELS__DEFAULT__KIND: "demo", OUTLAST_MODELS__DEFAULT__PACE: "5ms" };

export interface Server {
  readonly url: string;
  readonly port: number;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** On the same port, with the same data. */
  restart(): Promise<void>;
  /** Runs `outlast keys` beside it, and returns what it printed. */
  keys(...words: readonly string[]): string;
  /** Stops it and deletes its data. */
  end(): Promise<void>;
}

export async function startServer(settings: Readonly<Record<string, string>> = {}): Promise<Server> {
  if (!existsSync(binary)) {
    throw new Error(`no server at ${binary}: run "cargo build -p outlast", or set OUTLAST_BIN`);
  }
  const data = mkdtempSync(join(tmpdir(), "outlast-test-"));
  const isDemo = settings["OUTLAST_MODELS__DEFAULT__KIND"] === undefined;
  const env = { ...process.env, ...(isDemo && DEMO), ...settings };
  let child = launch(data, 0, env);
  const port = await child.ready;
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    kill: () => kill(child.process),
    async restart() {
      child = launch(data, port, env);
      await child.ready;
    },
    keys: (...words) =>
      execFileSync(binary, ["keys", ...words, "--data", data], { env, stdio: "pipe" })
        .toString()
        .trim(),
    async end() {
      await kill(child.process);
      rmSync(data, { recursive: true, force: true });
    },
  };
}

function launch(
  data: string,
  port: number,
  env: NodeJS.ProcessEnv,
): { process: ChildProcess; ready: Promise<number> } {
  const process = spawn(binary, ["serve", "--listen", `127.0.0.1:${port}`, "--data", data], { env });
  let said = "";
  const ready = new Promise<number>((resolve, reject) => {
    process.on("exit", () => reject(new Error(`the server did not start: ${said}`)));
    process.stderr.on("data", (chunk: Buffer) => (said += chunk));
    process.stdout.on("data", (chunk: Buffer) => {
      said += chunk;
      const address = /http:\/\/[\d.]+:(\d+)/.exec(said);
      if (address !== null) resolve(Number(address[1]));
    });
  });
  return { process, ready };
}

async function kill(process: ChildProcess): Promise<void> {
  if (process.exitCode !== null || process.signalCode !== null) return;
  const gone = new Promise((resolve) => process.once("exit", resolve));
  process.kill("SIGKILL");
  await gone;
}

/** Waits for a condition, and fails on a timeout. */
export async function until<T>(
  what: string,
  probe: () => T | Promise<T>,
  limitMs = 30_000,
): Promise<NonNullable<T>> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`timed out waiting for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
