// The page and /v1 come from one origin. Without `changeOrigin`: Outlast compares Origin and Host.
const outlast = {
  target: process.env.OUTLAST_URL ?? "http://127.0.0.1:8787",
  ws: true,
  // A stream whose server died must end here too. Vite would keep it open, and the page would believe in it.
  configure: (proxy) =>
    proxy.on("proxyRes", (theirs, _asked, answer) => theirs.on("error", () => answer.destroy())),
};

export default { server: { proxy: { "/v1": outlast } } };
