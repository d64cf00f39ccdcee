/** The tools of a generation, the questions to people, and what became of the sandbox, as spans of time. */

import type { OutlastEvent } from "@outlast/client";
import { revealBidi } from "../markdown/invisible";
import { sentence } from "../shell/sentence";
import { subjectOf } from "../tools/tool-call";
import type { Draft, SpanKind } from "./spans-of-time";
import { newSpan } from "./spans-of-time";

/** Of a bar's name. */
const NAME_LENGTH = 60;

/** Something that happened at one moment, or a state that lasted. */
export interface Mark {
  readonly name: string;
  readonly from: number;
  /** Null while it lasts. The same as `from` for a moment. */
  readonly to: number | null;
  readonly tone: "live" | "waits" | "lost" | "moment";
}

/** Marks of one kind, side by side on one line. */
export interface Lane {
  readonly name: string;
  readonly marks: readonly Mark[];
}

type SandboxEvent = Extract<OutlastEvent, { readonly type: "sandbox.changed" }>;

const TONES: Readonly<Record<SandboxEvent["payload"]["state"], Mark["tone"]>> = {
  created: "live",
  resumed: "live",
  restored: "live",
  paused: "waits",
  killed: "lost",
  lost: "lost",
};

export class AgentSpans {
  /** What each call is about, by its id. */
  readonly #names = new Map<string, string>();
  /** The tools that run and the questions that are open. */
  readonly #open = new Map<string, Draft>();
  readonly #sandbox: { -readonly [Key in keyof Mark]: Mark[Key] }[] = [];
  readonly #checkpoints: Mark[] = [];

  /** Returns the span that this event begins, if it begins one. */
  take(event: OutlastEvent, at: number): Draft | null {
    switch (event.type) {
      case "tool.start": {
        const { toolUseId, toolName, toolInput } = event.payload;
        this.#names.set(toolUseId, nameOf(toolName, toolInput));
        return null;
      }
      case "tool.began":
        return this.#begin("tool", event.payload.toolUseId, at);
      case "tool.end": {
        const { toolUseId, isError, exitCode, outcome } = event.payload;
        const why = outcome ?? (exitCode == null ? "failed" : `exit code ${exitCode}`);
        return this.#end("tool", toolUseId, at, isError ? why : null);
      }
      case "approval.requested": {
        const { toolUseId, toolName, toolInput } = event.payload;
        this.#names.set(toolUseId, nameOf(toolName, toolInput));
        return this.#begin("person", toolUseId, at);
      }
      case "approval.resolved": {
        const { toolUseId, decision } = event.payload;
        return this.#end("person", toolUseId, at, decision === "deny" ? "denied" : null);
      }
      case "sandbox.changed":
        this.#change(event, at);
        return null;
      case "checkpoint.taken": {
        const { files, bytes } = event.payload;
        this.#mark(`${files} files, ${bytes.toLocaleString("en")} bytes`, at, "moment");
        return null;
      }
      case "checkpoint.failed":
        this.#mark(`failed: ${event.payload.reason}`, at, "lost");
        return null;
      default:
        return null;
    }
  }

  /** A generation that has ended has no open question, and its tools are dead. */
  close(at: number): void {
    for (const span of this.#open.values()) span.to ??= at;
    this.#open.clear();
  }

  lanes(): readonly Lane[] {
    const lanes = [
      { name: "Sandbox", marks: this.#sandbox },
      { name: "Checkpoints", marks: this.#checkpoints },
    ];
    return lanes.filter(({ marks }) => marks.length > 0);
  }

  #begin(kind: SpanKind, id: string, at: number): Draft {
    const name = this.#names.get(id) ?? id;
    const span = newSpan(kind, kind === "person" ? `Decision: ${name}` : name, at);
    this.#open.set(`${kind} ${id}`, span);
    return span;
  }

  #end(kind: SpanKind, id: string, at: number, trouble: string | null): null {
    const span = this.#open.get(`${kind} ${id}`);
    this.#open.delete(`${kind} ${id}`);
    if (span === undefined) return null;
    span.to = at;
    span.trouble = trouble === null ? null : sentence(trouble);
    return null;
  }

  #change({ payload: { state } }: SandboxEvent, at: number): void {
    const last = this.#sandbox.at(-1);
    if (last !== undefined) last.to = at;
    this.#sandbox.push({ name: state, from: at, to: null, tone: TONES[state] ?? "live" });
  }

  #mark(name: string, at: number, tone: Mark["tone"]): void {
    this.#checkpoints.push({ name, from: at, to: at, tone });
  }
}

function nameOf(tool: string, input: unknown): string {
  const subject = subjectOf(tool, input)?.text.replace(/\s+/g, " ").trim() ?? "";
  const name = subject === "" ? tool : `${tool}: ${subject}`;
  return revealBidi(name.length > NAME_LENGTH ? `${name.slice(0, NAME_LENGTH - 1)}…` : name);
}
