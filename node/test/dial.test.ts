/**
 * Connections into machines over the link: bytes in both directions, or a refusal with the reason.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { DIAL_PREAMBLE, type LinkError } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import { machineIdOf, type TestNode } from "./support/in-process.ts";
import { startTestLink } from "./support/link.ts";

const A = machineIdOf("a");

/** A connection as the server sees it: its input, and its output once it was accepted. */
interface Dialed {
  readonly input: ClientRequest;
  readonly output: IncomingMessage;
}

interface Served extends AsyncDisposable {
  readonly node: TestNode;
  readonly env: Readonly<Record<string, string>>;
  /** The connections accepted by the guest's port 80. */
  readonly accepted: Socket[];
  dial(machineId: string, port: number): Promise<Dialed | { readonly status: number; readonly body: LinkError }>;
  /** A connection to the guest's port 80. */
  connect(): Promise<Dialed>;
  closeLink(): Promise<void>;
}

async function serve(): Promise<Served> {
  const accepted: Socket[] = [];
  const guest = createServer({ allowHalfOpen: true }, (socket) => void accepted.push(socket.on("error", () => {})));
  guest.listen(0, "127.0.0.1");
  await once(guest, "listening");
  const link = await startTestLink();
  const { node, socketPath } = link;
  const { port } = guest.address() as AddressInfo;
  const env = { FAKE_PORTS: `80=${port}` };
  await node.want(A, 1, "running", { env });
  const dial: Served["dial"] = (machineId, port) =>
    new Promise((resolve, reject) => {
      const path = `/v1/machines/${machineId}/dial/${port}`;
      const input = httpRequest({ method: "POST", path, socketPath, agent: false });
      input.on("response", (output) => {
        const { statusCode: status = 0 } = output;
        if (status === 200) resolve({ input, output: output.on("error", () => {}) });
        else void text(output).then((body) => resolve({ status, body: JSON.parse(body) as LinkError }));
      });
      input.on("error", reject);
      input.write(DIAL_PREAMBLE);
    });
  return {
    node,
    env,
    accepted,
    dial,
    closeLink: link.close,
    async connect() {
      const dialed = await dial(A, 80);
      assert.ok("input" in dialed);
      return dialed;
    },
    [Symbol.asyncDispose]: async () => {
      await link[Symbol.asyncDispose]();
      for (const socket of accepted) socket.destroy();
      guest.close();
    },
  };
}

const deadlineMs = 20_000;
const next = (served: Served, index: number): Promise<Socket> =>
  until(() => served.accepted[index], { deadlineMs, what: "the guest's connection" });

test("bytes flow in both directions, each direction ends separately, and none is lost", async () => {
  await using served = await serve();
  const { input, output } = await served.connect();
  const guest = await next(served, 0);
  const bytes = Buffer.alloc(5_000_000, "0123456789");
  input.end(bytes);
  assert.equal((await text(guest)).length, bytes.byteLength);
  // The caller's direction has ended; the guest's has not.
  guest.end(bytes);
  assert.equal((await text(output)).length, bytes.byteLength);
});

test("a side that does not read blocks the other", async () => {
  await using served = await serve();
  const { input, output } = await served.connect();
  const guest = await next(served, 0);
  output.pause();
  const chunk = Buffer.alloc(1024 * 1024);
  while (guest.write(chunk) || guest.writableLength < 32 * chunk.byteLength);
  const lefts: number[] = [];
  await until(
    () => {
      lefts.push(guest.writableLength);
      return lefts.length > 20 && lefts.at(-1) === lefts.at(-20);
    },
    { deadlineMs, what: "nothing to move any more" },
  );
  assert.ok(guest.writableLength > 16 * chunk.byteLength, `${guest.writableLength} bytes wait at the guest`);
  input.destroy();
  await until(() => guest.destroyed, { deadlineMs, what: "the guest to notice the disconnect" });
});

test("the end of either side, the machine or the link ends the connection, and a reset stays a reset", async () => {
  await using served = await serve();
  const broken = ({ output }: Dialed): Promise<unknown> => {
    output.resume();
    return until(() => output.errored !== null, { deadlineMs, what: "the caller to notice the reset" });
  };
  const one = await served.connect();
  (await next(served, 0)).resetAndDestroy();
  await broken(one);
  const two = await served.connect();
  const guest = (await next(served, 1)).resume();
  two.input.destroy();
  await until(() => guest.readableEnded || guest.destroyed, { deadlineMs, what: "the guest to notice the end" });
  const three = await served.connect();
  await served.node.want(A, 2, "stopped");
  await broken(three);
  await served.node.want(A, 3, "running", { env: served.env });
  const four = await served.connect();
  await served.closeLink();
  await broken(four);
});

test("a connection that cannot be made is refused with the reason", async () => {
  await using served = await serve();
  const refusal = async (machineId: string, port: number): Promise<readonly [number, string]> => {
    const answer = await served.dial(machineId, port);
    assert.ok("status" in answer);
    return [answer.status, answer.body.code];
  };
  assert.deepEqual(await refusal(A, 81), [502, "refused"]);
  assert.deepEqual(await refusal(machineIdOf("b"), 80), [404, "not_running"]);
  for (const port of [0, 65_536]) assert.equal((await refusal(A, port))[0], 400);
  await served.node.want(A, 2, "stopped");
  assert.deepEqual(await refusal(A, 80), [409, "not_running"]);
});

test("a machine has a limit of connections, and closed ones free their slots", async () => {
  await using served = await serve();
  const dialed = await Promise.all(Array.from({ length: 512 }, () => served.connect()));
  const refused = await served.dial(A, 80);
  assert.ok("status" in refused && refused.status === 503);
  for (const { input } of dialed) input.destroy();
  const isTaken = async (): Promise<boolean> => "input" in (await served.dial(A, 80));
  await until(isTaken, { deadlineMs, what: "a place" });
});
