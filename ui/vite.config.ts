import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { serviceWorker } from "./build/service-worker.ts";

export default defineConfig({
  plugins: [react(), serviceWorker()],
  // The client is linked from its own folder, and must share this app's React.
  resolve: { preserveSymlinks: true, dedupe: ["react", "react-dom"] },
  build: {
    target: "es2022",
    // The content security policy allows no inline scripts, and the polyfill would be one.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1_000,
  },
  server: {
    proxy: {
      // Without `changeOrigin`: the server accepts only requests of its own origin.
      "/v1": {
        target: process.env["OUTLAST_URL"] ?? "http://127.0.0.1:8787",
        ws: true,
        // A stream whose server died must end here too. Vite would keep it open, and the page would keep waiting.
        configure: (proxy) => {
          proxy.on("proxyRes", (upstream, _request, response) => {
            upstream.on("error", () => response.destroy());
          });
        },
      },
    },
  },
  test: {
    projects: [
      { extends: true, test: { name: "unit", include: ["test/*.test.ts", "test/*.test.tsx"] } },
      // These start servers and browsers and mostly wait for them, so two files run at a time. As the machine may be shared,
      // a test that fails is run once more. The report counts such retries: each is a fault to mend.
      {
        extends: true,
        test: {
          name: "e2e",
          include: ["e2e/*.test.ts"],
          exclude: ["e2e/long.test.ts"],
          testTimeout: 150_000,
          hookTimeout: 60_000,
          maxWorkers: 2,
          retry: 1,
        },
      },
      // These measure performance, so they run apart from the rest. They take a minute on a quiet machine.
      {
        extends: true,
        test: {
          name: "speed",
          include: ["e2e/long.test.ts"],
          testTimeout: 180_000,
          hookTimeout: 60_000,
          fileParallelism: false,
          retry: 1,
        },
      },
    ],
  },
});
