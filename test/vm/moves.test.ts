/**
 * A real machine moves between two real nodes of this host, which built its image and their templates apart
 * from each other. It keeps its files and its processes.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { moveLive, restoredMachine } from "../support/real-moves.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const WRITE =
  "head -c 8000000 /dev/urandom > /workspace/file && sync && sha256sum /workspace/file && echo kept > /etc/kept && sync";

const WRITER =
  "mkdir /workspace/many; (n=0; while sleep 0.05; do n=$((n+1)); head -c 200000 /dev/urandom >/workspace/many/$n; " +
  "sha256sum /workspace/many/$n >>/workspace/sums; [ $((n % 7)) = 0 ] && sync; done) >/dev/null 2>&1 &";
const COUNT_WRITTEN = "cat /workspace/sums 2>/dev/null | wc -l";
// The last line may be half written.
const COUNT_WRONG = "head -n 10 /workspace/sums | sha256sum -c 2>&1 | grep -vc OK; true";

/** Counts to its callers on port 80, to each from 1 on. */
const COUNTER = "printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'; n=0; while :; do n=$((n+1)); echo $n; usleep 20000; done";
const SERVER = `while :; do nc -l -p 80 -e sh -c "${COUNTER.replaceAll("$", "\\$")}"; done >/dev/null 2>&1 &`;

/** A connection to the machine's port through the bridge. */
class Viewer {
  text = "";
  /** How it ended; null: it is open. */
  end: string | null = null;
  readonly #gone = new AbortController();

  static async open(flotilla: Flotilla, id: string): Promise<Viewer> {
    const viewer = new Viewer();
    const { url, key } = flotilla.client();
    const headers = { authorization: `Bearer ${key}` };
    const { signal } = viewer.#gone;
    const answered = async (): Promise<Response | false> => {
      const response = await fetch(`${url}/v1/machines/${id}/connect/80/`, { headers, signal });
      return response.ok && response;
    };
    void viewer.#read(await until(answered, { what: "the port", deadlineMs: 60_000 }));
    await until(() => viewer.text.includes("\n10\n"), { what: `ten numbers: ${viewer.text}`, deadlineMs: 60_000 });
    return viewer;
  }

  async #read({ body }: Response): Promise<void> {
    try {
      for await (const chunk of body as unknown as AsyncIterable<Uint8Array>)
        this.text += Buffer.from(chunk).toString();
      this.end = "ended";
    } catch (error) {
      this.end = String(error);
    }
  }

  /** It ends with its machine's node: with an error, after numbers of which none is missing or repeated. */
  async ends(): Promise<void> {
    await until(() => this.end !== null, { what: `the end after ${this.text.slice(-20)}`, deadlineMs: 10_000 });
    assert.match(this.end ?? "", /terminated/, this.text.slice(-20));
    const numbers = this.text.split("\n").slice(0, -1).map(Number);
    assert.deepEqual(
      numbers,
      numbers.map((_number, index) => index + 1),
    );
  }

  async close(): Promise<void> {
    this.#gone.abort();
    await until(() => this.end !== null, { what: "the end" });
  }
}

test("a running machine continues on the other node with its files, its processes and what is in memory", {
  skip: skipReason,
}, async () => {
  await using flotilla = await startFlotilla({ nodes: 2, driver: "qemu" });
  const id = await restoredMachine(flotilla, { ports: [{ port: 80 }] });
  const from = (await flotilla.get(id)).nodeId ?? "";
  const to = from === "node-0" ? "node-1" : "node-0";
  const written = (count: number) =>
    until(async () => Number(await flotilla.exec(id, COUNT_WRITTEN)) >= count, {
      what: `${count} files to be written`,
      deadlineMs: 60_000,
    });
  const [sum = ""] = (await flotilla.exec(id, WRITE)).split(" ");
  assert.match(sum, /^[0-9a-f]{64}$/);
  await flotilla.exec(id, SERVER);
  // Writes on while its disk is sent: each file once, so that a block that was missed is seen.
  await flotilla.exec(id, WRITER);
  await written(3);
  const boot = await flotilla.exec(id, "echo kept > /dev/shm/file; cat /proc/sys/kernel/random/boot_id");
  const viewer = await Viewer.open(flotilla, id);
  const done = await moveLive(flotilla, id, to);
  assert.equal((await flotilla.get(id)).nodeId, to);
  assert.equal(await flotilla.exec(id, "sha256sum /workspace/file; cat /etc/kept"), `${sum}  /workspace/file\nkept\n`);
  assert.equal(
    await flotilla.exec(id, "cat /proc/sys/kernel/random/boot_id"),
    boot,
    (await flotilla.events(id)).join("\n"),
  );
  assert.equal(await flotilla.exec(id, "cat /dev/shm/file"), "kept\n");
  const early = /^[\d.]+ MB were copied, after ([\d.]+) MB while it ran$/.exec(done.steps[2]?.message ?? "")?.[1];
  assert.ok(Number(early) > 8, done.steps[2]?.message);
  await written(10);
  assert.equal(await flotilla.exec(id, COUNT_WRONG), "0\n");
  await viewer.ends();
  await (await Viewer.open(flotilla, id)).close();
  const index = Number(to.slice("node-".length));
  const roots = await readdir(join(flotilla.nodeDirectory(index), "images", "unpacked"), { recursive: true });
  assert.ok(
    roots.some((name) => /\/root-c[0-9a-f]+\.ext4$/.test(name)),
    roots.join(" "),
  );
  assert.deepEqual(await readdir(join(flotilla.nodeDirectory(1 - index), "machines")), []);
  await flotilla.stop(id);
  const disk = join(flotilla.nodeDirectory(index), "machines", id, "disk");
  const checked = spawnSync("qemu-img", ["check", disk]);
  assert.equal(checked.status, 0, `${checked.stdout} ${checked.stderr}`);
  await flotilla.remove(id);
});
