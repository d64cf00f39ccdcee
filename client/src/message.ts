/** Messages and their parts. */

import type { Part } from "./generated/api.js";

export type { Message, MessageStatus, Part, Role } from "./generated/api.js";

type PartOf<Type extends Part["type"]> = Extract<Part, { readonly type: Type }>;

export type TextPart = PartOf<"text">;
export type ThinkingPart = PartOf<"thinking">;
export type ImagePart = PartOf<"image">;
export type ToolUsePart = PartOf<"tool_use">;
export type ToolResultPart = PartOf<"tool_result">;

/** The text of parts, without thinking. */
export function plainText(parts: readonly Part[]): string {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Appends text to the last part if that has the same type, else adds a part. Signed thinking is complete. */
export function addText(parts: readonly Part[], type: "text" | "thinking", text: string): readonly Part[] {
  const last = parts.at(-1);
  if (last?.type === type && !("signature" in last))
    return [...parts.slice(0, -1), { type, text: last.text + text }];
  return [...parts, { type, text }];
}

/** Signs the thinking that was last added to, or adds thinking that the vendor does not show. */
export function sign(parts: readonly Part[], signature: string): readonly Part[] {
  const last = parts.at(-1);
  if (last?.type === "thinking" && !last.signature) return [...parts.slice(0, -1), { ...last, signature }];
  return [...parts, { type: "thinking", text: "", signature }];
}
