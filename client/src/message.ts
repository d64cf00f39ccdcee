/** Messages and their parts. */

export type Role = "user" | "assistant" | "tool" | "system";

/** `streaming` while text may still be added; otherwise how it ended. */
export type MessageStatus = "complete" | "streaming" | "cancelled" | "error";

export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

export interface ThinkingPart {
  readonly type: "thinking";
  readonly text: string;
}

/** A picture in a user's message. */
export interface ImagePart {
  readonly type: "image";
  /** Its address, or its content as a `data:` URL. */
  readonly url: string;
}

/** A tool call. */
export interface ToolUsePart {
  readonly type: "tool_use";
  readonly id: string;
  readonly name: string;
  /** The arguments: an object, or the model's raw text if it is not a valid one. */
  readonly input: unknown;
}

export interface ToolResultPart {
  readonly type: "tool_result";
  readonly toolUseId: string;
  readonly content: unknown;
  readonly isError: boolean;
}

export type Part = TextPart | ThinkingPart | ImagePart | ToolUsePart | ToolResultPart;

export interface Message {
  readonly id: string;
  readonly conversationId: string;
  readonly generationId: string | null;
  readonly role: Role;
  /** The plain text without thinking. Empty while the message is open: see `textOf`. */
  readonly content: string;
  readonly parts: readonly Part[];
  readonly status: MessageStatus;
  readonly errorMessage: string | null;
  /** Its position in the log. Messages are in this order. */
  readonly seq: number;
  readonly createdAt: string;
}

/** The text of parts, without thinking. */
export function plainText(parts: readonly Part[]): string {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Appends text to the last part if that has the same type, else adds a part. */
export function addText(parts: readonly Part[], type: "text" | "thinking", text: string): readonly Part[] {
  const last = parts.at(-1);
  if (last?.type === type) return [...parts.slice(0, -1), { type, text: last.text + text }];
  return [...parts, { type, text }];
}
