/**
 * The time from a key to its echo: through a WebSocket and everything behind it, against the guest channel alone
 * of a machine of the same kind, in turns. The guest kernel echoes; the program on the terminal is `cat`.
 */
import { once } from "node:events";
import type { GuestExec } from "../node/src/guest/guest.ts";
import { type Above, aboveAndBelow, type Below, takeTurns, usedNote } from "./support/above-and-below.ts";
import { IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

/** Emulated code is translated when it first runs. */
const WARM_UPS = 200;
const TOGETHER = 50;
const KEY = Buffer.from("k");
const ADDED_MS_MAX = 2;

/** Sends n keys each way, each after the previous one's echo. */
export async function terminalEcho(n: number): Promise<Finding> {
  const [ours, bare] = await aboveAndBelow(async (above, below) => {
    const [socket, exec] = [await terminalAbove(above), await terminalBelow(below)];
    try {
      const sides = [
        { work: () => typeInto(socket), pids: above.pids },
        { work: () => typeOn(exec), pids: below.pids },
      ];
      return await takeTurns(sides, { count: n, warmUps: WARM_UPS, together: TOGETHER });
    } finally {
      socket.close();
      exec.kill();
    }
  });
  if (!ours || !bare) throw new Error("nothing was measured");
  const [added, alone] = [summarize(ours.tookMs), summarize(bare.tookMs)];
  return {
    name: "terminal-echo",
    series: [
      { what: "key to echo, through a WebSocket", summary: added },
      { what: "key to echo, guest channel alone", summary: alone, isBaseline: true },
    ],
    reaches: [atMost("added, p50", added.p50Ms - alone.p50Ms, ADDED_MS_MAX)],
    setting: { image: IMAGE, size: "default" },
    notes: [usedNote(ours, n, "key"), `channel alone, ${usedNote(bare, n, "key")}`],
  };
}

async function terminalAbove({ flotilla, id }: Above) {
  const socket = flotilla.client.openTerminal(id, { query: { cmd: "/bin/cat" } });
  await once(socket, "open");
  return socket;
}

async function terminalBelow({ guest }: Below): Promise<GuestExec> {
  const terminal = { cols: 80, rows: 24 };
  const request = { argv: ["/bin/cat"], cwd: null, env: {}, user: null, hasStdin: true, terminal };
  const exec = guest.exec({ ...request, isBackground: false });
  await exec.pid;
  return exec;
}

async function typeInto(socket: Awaited<ReturnType<typeof terminalAbove>>): Promise<void> {
  const echoed = once(socket, "message");
  socket.send(KEY);
  await echoed;
}

async function typeOn(exec: GuestExec): Promise<void> {
  const echoed = once(exec.stdout, "data");
  exec.stdin.write(KEY);
  await echoed;
}
