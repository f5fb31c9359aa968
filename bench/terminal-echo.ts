/**
 * The time from a key to its echo: through a WebSocket and everything behind it, against the guest channel alone, in
 * the same machine in the same run. The guest kernel echoes; the program on the terminal is `cat`.
 */
import { once } from "node:events";
import type { Guest } from "../node/src/guest/guest.ts";
import { type Above, aboveAndBelow } from "./support/above-and-below.ts";
import { timed } from "./support/clock.ts";
import { IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

/** Emulated code is translated when it first runs. */
const WARM_UPS = 200;
const KEY = Buffer.from("k");
const ADDED_MS_MAX = 2;

/** Sends n keys each way, each after the previous one's echo. */
export async function terminalEcho(n: number): Promise<Finding> {
  const { ours, bare } = await aboveAndBelow(
    (machine) => above(machine, n),
    (guest) => below(guest, n),
  );
  const [added, alone] = [summarize(ours), summarize(bare)];
  return {
    name: "terminal-echo",
    series: [
      { what: "key to echo, through a WebSocket", summary: added },
      { what: "key to echo, guest channel alone", summary: alone, isBaseline: true },
    ],
    reaches: [atMost("added, p50", added.p50Ms - alone.p50Ms, ADDED_MS_MAX)],
    setting: { image: IMAGE, size: "default" },
    notes: [],
  };
}

async function samples(n: number, work: () => Promise<unknown>): Promise<number[]> {
  const found: number[] = [];
  for (let sample = -WARM_UPS; sample < n; sample++) {
    const tookMs = await timed(work);
    if (sample >= 0) found.push(tookMs);
  }
  return found;
}

async function above({ flotilla, id }: Above, n: number): Promise<number[]> {
  const socket = flotilla.client.openTerminal(id, { query: { cmd: "/bin/cat" } });
  await once(socket, "open");
  try {
    return await samples(n, async () => {
      const echoed = once(socket, "message");
      socket.send(KEY);
      await echoed;
    });
  } finally {
    socket.close();
  }
}

async function below(guest: Guest, n: number): Promise<number[]> {
  const terminal = { cols: 80, rows: 24 };
  const request = { argv: ["/bin/cat"], cwd: null, env: {}, user: null, hasStdin: true, terminal };
  const exec = guest.exec({ ...request, isBackground: false });
  await exec.pid;
  try {
    return await samples(n, async () => {
      const echoed = once(exec.stdout, "data");
      exec.stdin.write(KEY);
      await echoed;
    });
  } finally {
    exec.kill();
  }
}
