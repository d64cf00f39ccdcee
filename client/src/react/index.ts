export { OutlastProvider, useOutlast } from "./provider.js";
export type { OutlastProviderProps } from "./provider.js";
export { useCapabilities } from "./use-capabilities.js";
export { useConversation } from "./use-conversation.js";
export type { UseConversation } from "./use-conversation.js";
export { useConversations } from "./use-conversations.js";
export type { UseConversations } from "./use-conversations.js";
export { useGeneration } from "./use-generation.js";
export type { UseGeneration } from "./use-generation.js";
