// The tables. Positions, fences and versions are integers of 64 bits; `place` and `due` are sort keys that the server
// makes: sixteen hexadecimal digits of a number, then the id.
import { defineSchema, defineTable } from "convex/server";
import { v } from "convex/values";

/** A short text, or null for one that is in `texts`. */
export const stored = v.union(v.string(), v.null());

/** The kinds of documents. */
export const table = v.union(v.literal("conversations"), v.literal("messages"), v.literal("generations"));

const logs = {
  /** At most one row: the newest fence that was handed out. */
  fences: defineTable({ latest: v.int64() }),

  /** Where the log of each conversation ends. */
  logs: defineTable({ conversation: v.string(), last: v.int64() }).index("by_conversation", ["conversation"]),

  /** Records, joined by newlines. A large one is spread over several rows, all but the last with `more`. */
  lines: defineTable({
    conversation: v.string(),
    first: v.int64(),
    last: v.int64(),
    part: v.number(),
    more: v.boolean(),
    base64: v.boolean(),
    text: v.string(),
  }).index("by_last", ["conversation", "last", "part"]),
};

const documents = {
  documents: defineTable({
    table,
    id: v.string(),
    conversation: v.string(),
    user: v.string(),
    seq: v.int64(),
    place: v.string(),
    due: v.optional(v.string()),
    status: v.string(),
    request: v.string(),
    tags: v.array(v.string()),
    bytes: v.number(),
    body: stored,
    state: v.optional(stored),
  })
    .index("by_key", ["table", "id"])
    .index("by_place", ["table", "place"])
    .index("by_conversation", ["table", "conversation", "place"])
    .index("by_request", ["table", "conversation", "request", "place"])
    .index("by_user", ["table", "user", "place"])
    .index("by_user_status", ["table", "user", "status", "place"])
    .index("by_status", ["table", "status", "place"])
    .index("by_due", ["table", "due"]),

  /** One row for each tag of a conversation. */
  tags: defineTable({ document: v.id("documents"), user: v.string(), tag: v.string(), place: v.string() })
    .index("by_document", ["document"])
    .index("by_tag", ["user", "tag", "place"]),

  /** Long texts in parts, because a row holds at most 1 MiB. `owner` is the id of the row they belong to. */
  texts: defineTable({ owner: v.string(), name: v.string(), part: v.number(), text: v.string() }).index(
    "by_owner",
    ["owner", "name", "part"],
  ),
};

const others = {
  items: defineTable({
    kind: v.string(),
    id: v.string(),
    user: v.string(),
    place: v.string(),
    due: v.optional(v.string()),
    version: v.int64(),
    bytes: v.number(),
    body: stored,
  })
    .index("by_key", ["kind", "id"])
    .index("by_place", ["kind", "place"])
    .index("by_user", ["kind", "user", "place"])
    .index("by_due", ["kind", "due"]),

  /** When the lease of each instance expires, in milliseconds of Convex's clock. */
  leases: defineTable({ instance: v.string(), expires: v.number() })
    .index("by_instance", ["instance"])
    .index("by_expires", ["expires"]),

  owners: defineTable({ conversation: v.string(), fence: v.int64(), instance: v.string() })
    .index("by_conversation", ["conversation"])
    .index("by_instance", ["instance"]),

  mail: defineTable({
    id: v.string(),
    conversation: v.string(),
    sender: v.string(),
    answered: v.boolean(),
    body: stored,
    reply: v.optional(stored),
  })
    .index("by_key", ["id"])
    .index("by_conversation", ["answered", "conversation"])
    .index("by_sender", ["sender", "answered"]),

  /** Deleted conversations whose rows are still being removed. */
  removals: defineTable({ conversation: v.string() }).index("by_conversation", ["conversation"]),
};

export default defineSchema({ ...logs, ...documents, ...others });
