// The page and /v1 have the same origin. Do not set `changeOrigin`: Outlast compares Origin with Host.
const outlast = {
  target: process.env.OUTLAST_URL ?? "http://127.0.0.1:8787",
  ws: true,
  // When the server dies, end its streams here too. Otherwise Vite keeps them open and the page keeps waiting.
  configure: (proxy) =>
    proxy.on("proxyRes", (upstream, _request, response) => upstream.on("error", () => response.destroy())),
};

export default { server: { proxy: { "/v1": outlast } } };
