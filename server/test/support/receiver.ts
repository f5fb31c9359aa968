/**
 * A receiver of webhooks on loopback: keeps what it accepts, in order, and answers as the test says.
 */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after } from "node:test";

export interface Received {
  readonly id: string;
  readonly timestamp: string;
  readonly signature: string;
  readonly body: string;
  /** The parsed body. */
  readonly event: ReturnType<JSON["parse"]>;
}

/** Returns a status, or null when it answers by itself or not at all. */
export type Behaviour = (received: Received, response: ServerResponse) => number | null;

export interface Receiver {
  readonly url: string;
  readonly port: number;
  /** In the order in which they were answered with 2xx; repeated ones too. */
  readonly accepted: Received[];
  /** Every request that was received. */
  readonly requests: Received[];
  behave: Behaviour;
}

/** Closed after the tests of the file. `port` 0: the system chooses. */
export async function startReceiver(behave: Behaviour = () => 200, port = 0): Promise<Receiver> {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString("utf8")));
    request.on("end", () => {
      const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature } = request.headers;
      const event: Received["event"] = JSON.parse(body);
      const received = { id: String(id), timestamp: String(timestamp), signature: String(signature), body, event };
      receiver.requests.push(received);
      const status = receiver.behave(received, response);
      if (status === null) return;
      if (status >= 200 && status < 300) receiver.accepted.push(received);
      response.writeHead(status).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = server.address() as AddressInfo;
  const receiver: Receiver = {
    url: `http://127.0.0.1:${address.port}/hook`,
    port: address.port,
    accepted: [],
    requests: [],
    behave,
  };
  return receiver;
}
