/** Messages of the transcript and the pieces they are made of. */

export type Role = "user" | "assistant" | "tool" | "system";

/** `streaming` while text may still be added; the others say how it ended. */
export type MessageStatus = "complete" | "streaming" | "cancelled" | "error";

export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

export interface ThinkingPart {
  readonly type: "thinking";
  readonly text: string;
}

/** A picture that the user shows. */
export interface ImagePart {
  readonly type: "image";
  /** Where it is, or itself as a `data:` address. */
  readonly url: string;
}

/** The model asks for a tool. */
export interface ToolUsePart {
  readonly type: "tool_use";
  readonly id: string;
  readonly name: string;
  /** Its arguments: an object, or the very text if the model wrote none. */
  readonly input: unknown;
}

/** What the tool answered. */
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
  /** The plain text, without the thinking. Empty while the message is open: see `textOf`. */
  readonly content: string;
  readonly parts: readonly Part[];
  readonly status: MessageStatus;
  readonly errorMessage: string | null;
  /** Where in the log it began. Messages are in this order. */
  readonly seq: number;
  readonly createdAt: string;
}

/** What is said in some parts, without the thinking. */
export function plainText(parts: readonly Part[]): string {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Adds text to the last part if that is of the same kind, else opens a new one. */
export function addText(parts: readonly Part[], type: "text" | "thinking", text: string): readonly Part[] {
  const last = parts.at(-1);
  if (last?.type === type) return [...parts.slice(0, -1), { type, text: last.text + text }];
  return [...parts, { type, text }];
}
