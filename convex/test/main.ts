// `node main.mjs KEY` serves on a free port of this machine, prints the port, and ends with its input.
import type { AddressInfo } from "node:net";
import { serve } from "./server";

const server = serve(process.argv[2] ?? "");
server.listen(0, "127.0.0.1", () => {
  console.log((server.address() as AddressInfo).port);
});
process.stdin.resume().on("end", () => process.exit(0));
