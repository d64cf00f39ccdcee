// The page and /v1 come from one origin. Without `changeOrigin`: Outlast compares Origin and Host.
const target = process.env.OUTLAST_URL ?? "http://127.0.0.1:8787";
export default { server: { proxy: { "/v1": { target, ws: true } } } };
