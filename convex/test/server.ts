// A Convex deployment for tests: the functions run on `convex-test`, under the limits of Convex, behind its HTTP API.
// The first part of the path names the deployment. Each is empty when it is first used, and ends with this process.
import { createServer, type IncomingMessage, type Server } from "node:http";
import { makeFunctionReference } from "convex/server";
import { ConvexError, convexToJson, jsonToConvex, type JSONValue, type Value } from "convex/values";
import { convexTest } from "convex-test";
import { modules } from "./modules";
import schema from "../functions/schema";

/** What hosted Convex accepts as a request is unknown; its arguments have at most 16 MiB. */
const BODY_BYTES_MAX = 32 << 20;

type Deployment = ReturnType<typeof deploy>;
type Kind = "query" | "mutation";
type Answer = { status: number; body: JSONValue };

/** Serves until it is closed. Only who knows the key can run internal functions, which all of ours are. */
export function serve(key: string): Server {
  const deployments = new Map<string, Deployment>();
  const server = createServer((request, response) => {
    answer(deployments, key, request)
      .catch((error: unknown) => problem(500, "InternalServerError", String(error)))
      .then(({ status, body }) => {
        response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
      });
  });
  // Longer than clients keep an idle connection, so that none is closed while a request is on its way.
  server.keepAliveTimeout = 120_000;
  return server;
}

/** With the limits that a transaction has in Convex. */
function deploy() {
  return convexTest({ schema, modules, transactionLimits: true });
}

function problem(status: number, code: string, message: string): Answer {
  return { status, body: { code, message } };
}

async function answer(
  deployments: Map<string, Deployment>,
  key: string,
  request: IncomingMessage,
): Promise<Answer> {
  const [, name, kind] = /^\/([^/]+)\/api\/(query|mutation)$/.exec(request.url ?? "") ?? [];
  if (request.method !== "POST" || name === undefined || kind === undefined) {
    return problem(404, "NotFound", "no such route");
  }
  const authorization = request.headers.authorization;
  if (authorization !== undefined && authorization !== `Convex ${key}`) {
    return problem(401, "BadDeployKey", "The provided deploy key was invalid for deployment");
  }
  const call = parse(await bodyOf(request));
  if (call === null) return problem(400, "BadJsonBody", "expected path, args and format");
  if (authorization === undefined) return failed(`Could not find public function for '${call.path}'`);
  const deployment = deployments.get(name) ?? deploy();
  deployments.set(name, deployment);
  return await run(deployment, kind as Kind, call);
}

type Call = { path: string; args: Record<string, Value>; encoded: boolean };

function parse(text: string): Call | null {
  const { path, args, format } = JSON.parse(text) as { path?: unknown; args?: JSONValue; format?: unknown };
  const known = format === "json" || format === "convex_encoded_json";
  // The official client sends the arguments as a list of one object.
  const object = Array.isArray(args) ? args[0] : args;
  if (typeof path !== "string" || !known || object === undefined) return null;
  return {
    path,
    args: jsonToConvex(object) as Record<string, Value>,
    encoded: format === "convex_encoded_json",
  };
}

async function run(deployment: Deployment, kind: Kind, { path, args, encoded }: Call): Promise<Answer> {
  try {
    const value: Value =
      kind === "query"
        ? await deployment.query(makeFunctionReference<"query">(path), args)
        : await deployment.mutation(makeFunctionReference<"mutation">(path), args);
    return {
      status: 200,
      body: { status: "success", value: encoded ? convexToJson(value) : exported(value) },
    };
  } catch (error) {
    if (error instanceof ConvexError) return failed(error.message, dataOf(error));
    return failed(error instanceof Error ? error.message : String(error));
  }
}

/** Convex reports what a function throws with this body, and with status 200. */
function failed(errorMessage: string, errorData?: JSONValue): Answer {
  const body = { status: "error", errorMessage };
  return { status: 200, body: errorData === undefined ? body : { ...body, errorData } };
}

/** `convex-test` passes the data on as text. */
function dataOf(error: ConvexError<Value>): JSONValue {
  return typeof error.data === "string" ? (JSON.parse(error.data) as JSONValue) : convexToJson(error.data);
}

/** The format `json`: what JSON does not know becomes a string. */
function exported(value: Value): JSONValue {
  if (typeof value === "bigint") return String(value);
  if (value instanceof ArrayBuffer) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map(exported);
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, exported(field ?? null)]));
  }
  return value;
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_BYTES_MAX) throw new Error("the request is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
