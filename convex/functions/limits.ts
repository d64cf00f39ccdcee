// What one transaction does at most, far below the limits of Convex: 32,000 rows and 16 MiB read, 16,000 rows and
// 16 MiB written, 4,096 queries, and 1 MiB in one row. The server asks again for the rest.

/** Rows of an index that a list looks at. */
export const SCAN_ROWS = 256;

/** Characters of a log that are read at once, besides the last record. */
export const READ_CHARACTERS = 1 << 20;

/** A load that has read more than this leaves the log to other queries. */
export const LOAD_BYTES = 4 << 20;

/** Rows of a log that are read or trimmed at once. */
export const READ_ROWS = 1024;

/** Rows that one step of a removal takes, each with what belongs to it. */
export const REMOVE_ROWS = 128;

/** Characters after which a step of a removal ends. */
export const REMOVE_CHARACTERS = 1 << 20;

/** Unanswered mail of one conversation that is looked at. Few senders die, and what they sent is dropped later. */
export const MAIL_ROWS = 512;

/** Conversations with unanswered mail that one step looks at. */
export const MAIL_CONVERSATIONS = 64;
