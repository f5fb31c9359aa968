/**
 * Assistants' calls in real machines: what they cancel, or leave by ending, ends there too.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { connectMcp, type Door, ERAS, type Era, type McpCaller } from "../../cli/test/mcp-client.ts";
import { startCli } from "../../cli/test/run-cli.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 60_000 };
const SMALL = { cpus: 1, memoryMb: 256, diskGb: 1 };

describe("an assistant's command in a real machine", { skip: skipReason }, () => {
  let flotilla: Flotilla;
  let environment: Record<string, string>;
  let key: string;
  let seconds = 4_000;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
    key = readFileSync(join(flotilla.servers[0]?.directory ?? "", "admin.key"), "utf8").trim();
    environment = { FLOTILLA_URL: flotilla.urls[0] ?? "", FLOTILLA_API_KEY: key };
  });
  after(() => flotilla?.[Symbol.asyncDispose]());

  const runs = async (id: string, line: string): Promise<boolean> =>
    (await flotilla.exec(id, "ps -o args")).split("\n").includes(line);

  /** Begins a command that no other call has, and returns how it is listed. */
  async function begin(mcp: McpCaller, id: string, signal?: AbortSignal) {
    seconds += 1;
    const line = `sleep ${seconds}`;
    const running = mcp.call("run_command", { machine: id, command: ["sleep", String(seconds)] }, signal);
    running.catch(() => undefined);
    await until(() => runs(id, line), { what: "the command", ...LONG });
    return { running, line };
  }

  for (const era of Object.keys(ERAS) as Era[]) {
    test(`it ends when the call is cancelled, or its client ends, in the ${era} era`, async (t) => {
      const { child } = startCli(t, ["mcp", "--listen", "127.0.0.1:0"], { environment });
      let errors = "";
      child.stderr?.on("data", (chunk: Buffer) => (errors += chunk));
      await until(() => errors.includes("/mcp,"), { what: "the address", ...LONG });
      const [, url = ""] = /serves (\S+),/.exec(errors) ?? [];
      const { id } = await flotilla.create({ resources: SMALL });
      const doors: readonly Door[] = [{ environment }, { url, key }];
      for (const door of doors) {
        const mcp = await connectMcp(t, era, door);
        const failing = await mcp.call("run_command", { machine: id, command: "echo out; echo err >&2; exit 7" });
        assert.deepEqual([failing.facts["exitCode"], failing.facts["stderr"]], [7, "err\n"]);
        const stopping = new AbortController();
        const { running, line } = await begin(mcp, id, stopping.signal);
        stopping.abort();
        await assert.rejects(running);
        await until(async () => !(await runs(id, line)), { what: "its end", ...LONG });
        // Over HTTP a session of the older era outlives a client that says nothing.
        if ("url" in door && era === "older") continue;
        const left = await begin(mcp, id);
        await mcp.client.close();
        await until(async () => !(await runs(id, left.line)), { what: "the end of what was left", ...LONG });
      }
    });
  }
});
