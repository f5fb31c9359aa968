/**
 * What access by a machine's address adds: requests to a small web server in a real machine by its public URL
 * (server, link, node agent), against the same requests to the same port dialed on the node, in the same run.
 *
 * The node publishes the port on loopback for the second half, so both go through the node agent; the clients
 * keep their connections alive on both sides. The two alternate.
 */
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { CONNECTIONS, guestProgram, Side, TURN_MS } from "./support/guest-http.ts";
import type { Finding } from "./support/report.ts";
import { summarize } from "./support/statistics.ts";

/** Takes n turns of each. */
export async function ingress(n: number): Promise<Finding> {
  const program = await guestProgram();
  await using flotilla = await BenchFlotilla.start({
    driver: "qemu",
    environment: { FLOTILLA_PUBLISH_ON_LOOPBACK: "yes" },
  });
  flotilla.requireOwn();
  await flotilla.liftLimits();
  await flotilla.untilPrepared(1);
  const { id } = await flotilla.create({ ports: [{ port: 80 }], public: true });
  await flotilla.client.startMachine(id);
  await flotilla.client.putFileAt(id, "workspace/guest-http", program);
  const command = "chmod +x /workspace/guest-http && exec /workspace/guest-http";
  await flotilla.client.exec(id, { command: ["sh", "-c", command], background: true });
  const { ports } = await flotilla.client.getMachine(id);
  const hostPort = ports[0]?.hostPort ?? null;
  if (hostPort === null) throw new Error("the node does not publish the machine's port on loopback");
  // Preparing a VM meanwhile would be measured too.
  await flotilla.untilPrepared(1);

  const common = { method: "GET", headers: {}, body: "" } as const;
  const [server, node] = [await flotilla.pidOf("server"), await flotilla.pidOf("node")];
  const ours = new Side({ ...common, url: flotilla.access.url, path: `/proxy/${id}/` }, [server, node]);
  const direct = new Side({ ...common, url: `http://127.0.0.1:${hostPort}`, path: "/" }, [server, node]);
  for (const side of [ours, direct]) await side.warmUp();
  for (let turn = 0; turn < n; turn++) for (const side of [ours, direct]) await side.take();
  const [alone, bare] = [summarize(ours.aloneMs), summarize(direct.aloneMs)];
  const [loaded, bareLoaded] = [summarize(ours.loadedMs), summarize(direct.loadedMs)];
  const ratio = ours.rate / direct.rate;
  return {
    name: "ingress",
    series: [
      { what: "GET by the machine's URL, one by one", summary: alone },
      { what: "GET on the node, one by one", summary: bare, isBaseline: true },
      { what: `GET by the machine's URL, ${CONNECTIONS} at once`, summary: loaded },
      { what: `GET on the node, ${CONNECTIONS} at once`, summary: bareLoaded },
    ],
    reaches: [],
    setting: { image: IMAGE, size: "default", connections: CONNECTIONS, turns: n, "seconds a turn": TURN_MS / 1000 },
    notes: [
      `added, one by one: p50 ${(alone.p50Ms - bare.p50Ms).toFixed(2)} ms, p99 ${(alone.p99Ms - bare.p99Ms).toFixed(2)} ms`,
      `added, ${CONNECTIONS} at once: p50 ${(loaded.p50Ms - bareLoaded.p50Ms).toFixed(2)} ms, p99 ${(loaded.p99Ms - bareLoaded.p99Ms).toFixed(2)} ms`,
      `by the URL ${Math.round(ours.rate)} per second, on the node ${Math.round(direct.rate)} per second, ratio ${ratio.toFixed(3)}`,
      `processor time for each, server and node agent: by the URL ${ours.processorTime}, on the node ${direct.processorTime}`,
    ],
  };
}
