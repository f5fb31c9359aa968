/**
 * The least that node:http with the server's router does for a request: a separate process with handlers that
 * do nothing, for the routes that benchmarks request. It also acts as a program in a machine: an upload to
 * `/` is read and discarded.
 *
 * Prints its address on one line and ends with its parent.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import findMyWay from "find-my-way";

const router = findMyWay();
for (const [method, path] of [
  ["GET", "/v1/machines/:id"],
  ["POST", "/v1/machines/:id/exec"],
  ["GET", "/"],
  ["POST", "/"],
] as const)
  router.on(method, path, () => undefined);

const HEADERS = ["content-type", "application/json; charset=utf-8", "content-length", "2"];
const server = createServer({ optimizeEmptyRequests: true }, (request, response) => {
  const found = router.find(request.method as "GET", request.url ?? "/");
  const answer = (): void => {
    response.writeHead(found === null ? 404 : 200, HEADERS);
    response.end("{}");
  };
  if (request.method === "GET") answer();
  else request.once("end", answer).resume();
});
server.listen({ host: "127.0.0.1", port: 0 }, () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`http://127.0.0.1:${port}\n`);
});
process.stdin.on("end", () => process.exit(0)).resume();
