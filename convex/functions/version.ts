// The server asks for this when it opens the store, to learn whether these functions are the ones that it knows.
import { query } from "./functions";

/** Changes whenever the arguments or the answers of a function change. */
const VERSION = "1";

export const version = query({ args: {}, handler: () => Promise.resolve(VERSION) });
