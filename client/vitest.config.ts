import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    projects: [
      { test: { name: "unit", include: ["test/*.test.ts", "test/*.test.tsx"] } },
      // These start real servers and are sensitive to timing, so they run one file at a time. As the machine may be shared,
      // one that fails is run once more. The report counts such retries: each is a fault to mend.
      {
        test: {
          name: "server",
          include: ["test/server/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 60_000,
          fileParallelism: false,
          retry: 1,
        },
      },
    ],
  },
});
