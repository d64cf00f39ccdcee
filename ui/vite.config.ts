import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { serviceWorker } from "./build/service-worker.ts";

export default defineConfig({
  plugins: [react(), serviceWorker()],
  // The client is linked from its folder beside this one; its React must be this one's.
  resolve: { preserveSymlinks: true, dedupe: ["react", "react-dom"] },
  build: {
    target: "es2022",
    // The page allows no inline scripts, and a polyfill for old browsers would be one.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1_000,
  },
  server: {
    proxy: {
      // Without `changeOrigin`: a server without keys answers only pages of its own origin.
      "/v1": {
        target: process.env["OUTLAST_URL"] ?? "http://127.0.0.1:8787",
        ws: true,
        // A stream whose server died must end here too. Vite would keep it open, and the page would believe in it.
        configure: (proxy) => {
          proxy.on("proxyRes", (theirs, _asked, answer) => {
            theirs.on("error", () => answer.destroy());
          });
        },
      },
    },
  },
  test: {
    projects: [
      { extends: true, test: { name: "unit", include: ["test/*.test.ts", "test/*.test.tsx"] } },
      // These start servers and browsers. One file at a time: they are about order and loss, and they measure.
      {
        extends: true,
        test: {
          name: "e2e",
          include: ["e2e/*.test.ts"],
          exclude: ["e2e/long.test.ts"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
          fileParallelism: false,
        },
      },
      // These measure, apart from the rest. They take a minute, and longer where others use the machine.
      {
        extends: true,
        test: {
          name: "speed",
          include: ["e2e/long.test.ts"],
          testTimeout: 180_000,
          hookTimeout: 60_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
