// The functions by the name of their file, as `convex-test` wants them. It looks for the root beside `_generated`.
import * as append from "../functions/append";
import * as documents from "../functions/documents";
import * as items from "../functions/items";
import * as log from "../functions/log";
import * as mail from "../functions/mail";
import * as owners from "../functions/owners";
import * as removal from "../functions/removal";
import * as version from "../functions/version";

const files = { append, documents, items, log, mail, owners, removal, version };

export const modules: Record<string, () => Promise<unknown>> = {
  "./_generated/api.js": () => Promise.resolve({}),
};
for (const [name, module] of Object.entries(files)) {
  modules[`./${name}.ts`] = () => Promise.resolve(module);
}
