/**
 * An HTTP server of one test, on loopback.
 */
import { once } from "node:events";
import { type ClientRequest, createServer, type RequestListener, request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

/** A POST to the listener, which the caller writes and ends. What breaks it is seen in its answer. */
export async function requestTo(t: TestContext, listener: RequestListener): Promise<ClientRequest> {
  const server = createServer(listener);
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const request = httpRequest({ port, host: "127.0.0.1", method: "POST" });
  request.on("error", () => undefined);
  return request;
}
