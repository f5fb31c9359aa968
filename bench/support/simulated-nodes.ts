/**
 * Simulates the agents of a fleet: each sends a heartbeat every 5 s, in which one of its machines has become
 * ready, or has stopped being ready, and each answers a requested state at once as reached.
 *
 * A program whose argument is the number of nodes; with a second one, `idle`, they have no machines at first.
 * It prints the port at which all of them listen, each at its own loopback address. The first line on its
 * standard input is the path of the server's socket for nodes, to which it sends heartbeats from then on.
 * Each further line is a number: so many nodes, the first ones, are cut off from now on. On SIGTERM it
 * prints the number of answers by status, and ends.
 */
import { once } from "node:events";
import { Agent, createServer, type IncomingMessage, request as httpRequest, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { systemClock } from "@flotilla/base/clock";
import { absentMachine } from "@flotilla/contract/link/absent";
import type { DesiredMachine, Heartbeat, ObservedMachine } from "@flotilla/contract/link/link";
import { OWN_LINK_VERSIONS } from "@flotilla/contract/link/version";
import { monotonic, sleep } from "./clock.ts";
import { credentialOf, hostOf, MACHINES_EACH, machineId, nodeId } from "./fleet.ts";

const PERIOD_MS = 5_000;
const RESOURCES = {
  ...{ totalCpus: 64, totalMemoryMb: 262_144, availableMemoryMb: 200_000, totalDiskGb: 2_000, availableDiskGb: 1_500 },
  ...{ usedCpus: 8, usedMemoryMb: 62_144, usedDiskGb: 500, pressure: null },
};

const nodes = Number(process.argv[2]);
const isIdle = process.argv[3] === "idle";
const agent = new Agent({ keepAlive: true, maxSockets: 64 });
const answers: Record<string, number> = {};
let reached = 0;
let cutOff = 0;

process.once("SIGTERM", () => {
  process.stdout.write(`${JSON.stringify({ ...answers, reached })}\n`, () => process.exit(0));
});

let port = 0;
for (let node = 1; node <= nodes; node++) {
  const server = createServer((request, response) => {
    if (node <= cutOff) request.destroy();
    else void reach(request, response);
  });
  server.listen(port, hostOf(node));
  await once(server, "listening");
  ({ port } = server.address() as AddressInfo);
}
process.stdout.write(`${port}\n`);
const lines = createInterface({ input: process.stdin });
const [socketPath] = (await once(lines, "line")) as [string];
lines.on("line", (line) => {
  cutOff = Number(line);
});
const startedAt = monotonic();
for (let beat = 0; ; beat++) {
  const early = startedAt + (beat * PERIOD_MS) / nodes - monotonic();
  if (early > 0) await sleep(early);
  const node = (beat % nodes) + 1;
  if (node > cutOff) void send(node, heartbeat(node, Math.floor(beat / nodes)));
}

/** One of its machines has changed. */
function heartbeat(node: number, round: number): object {
  const changed = machineId(node, (round % MACHINES_EACH) + 1);
  const machine: ObservedMachine = {
    ...absentMachine(changed, 1),
    ...{ state: "running", bootId: `boot-${changed}`, runningSince: 1_700_000_000_000 },
    readySince: round % 2 === 0 ? systemClock.now() : null,
  };
  const body: Omit<Heartbeat, "images" | "runs" | "release" | "lastError" | "outdatedVmms"> = {
    ...{
      bootId: "agent",
      link: OWN_LINK_VERSIONS,
      isComplete: false,
      sentAt: systemClock.now(),
      resources: RESOURCES,
      events: [],
    },
    machines: isIdle ? [] : [machine],
    ...{ canFence: true, incomingMoves: [] },
  };
  return body;
}

async function send(node: number, body: object): Promise<void> {
  const text = JSON.stringify(body);
  const headers = {
    ...{ authorization: `Bearer ${credentialOf(node)}`, "content-type": "application/json" },
    "content-length": Buffer.byteLength(text),
  };
  const request = httpRequest({
    ...{ socketPath, path: `/v1/nodes/${nodeId(node)}/heartbeat` },
    method: "POST",
    headers,
    agent,
  });
  request.on("error", () => undefined);
  request.end(text);
  const answered = once(request, "response").catch(() => null) as Promise<[IncomingMessage] | null>;
  const response = (await answered)?.[0];
  response?.resume();
  const status = String(response?.statusCode ?? "none");
  answers[status] = (answers[status] ?? 0) + 1;
}

/** `PUT /v1/machines/{id}`: what is desired is so. */
async function reach(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  const id = /^\/v1\/machines\/([^/?]+)/.exec(request.url ?? "")?.[1] ?? "";
  const desired = JSON.parse(Buffer.concat(pieces).toString() || "{}") as Partial<DesiredMachine>;
  const isRunning = desired.state === "running";
  const { isFenced = false } = desired;
  const machine: ObservedMachine = {
    ...absentMachine(id, desired.generation ?? 0),
    ...(isRunning
      ? {
          state: "running",
          bootId: `boot-${id}`,
          runningSince: systemClock.now(),
          readySince: systemClock.now(),
          isFenced,
        }
      : {}),
  };
  reached += 1;
  response.setHeader("content-type", "application/json").end(JSON.stringify(machine));
}
