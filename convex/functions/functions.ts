// How functions are declared. All of them are internal: only a caller with a deploy key can run them. The types come
// from the schema, so nothing has to be generated before they can be checked.
import {
  internalMutationGeneric,
  internalQueryGeneric,
  type DataModelFromSchemaDefinition,
  type DocumentByName,
  type GenericDatabaseReader,
  type GenericDatabaseWriter,
  type MutationBuilder,
  type QueryBuilder,
} from "convex/server";
import { ConvexError } from "convex/values";
import type schema from "./schema";

export type DataModel = DataModelFromSchemaDefinition<typeof schema>;
export type Doc<Name extends keyof DataModel & string> = DocumentByName<DataModel, Name>;
export type Reader = GenericDatabaseReader<DataModel>;
export type Writer = GenericDatabaseWriter<DataModel>;

/** Sees one moment. Convex may answer from a cache, so nothing here depends on the time. */
export const query: QueryBuilder<DataModel, "internal"> = internalQueryGeneric;

/** A serializable transaction, at the time of Convex's clock. It has no effect if it throws. */
export const mutation: MutationBuilder<DataModel, "internal"> = internalMutationGeneric;

/** Undoes the transaction and tells the server why. */
export function refuse(why: "over" | "stateless", value: string): never {
  throw new ConvexError({ refused: why, value });
}
