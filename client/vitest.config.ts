import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    projects: [
      { test: { name: "unit", include: ["test/*.test.ts", "test/*.test.tsx"] } },
      // These start real servers and are sensitive to timing, so they run one file at a time.
      {
        test: {
          name: "server",
          include: ["test/server/*.test.ts"],
          testTimeout: 60_000,
          hookTimeout: 30_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
