/**
 * What a program does with a sandbox, through one version of E2B's client: each call ends within CALL_MS.
 *
 * The types are those of the newest version.
 */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { get } from "node:http";
import type { Duplex } from "node:stream";
import { gzipSync } from "node:zlib";
import type { CommandHandle, Sandbox as NewestSandbox } from "e2b";
import { systemClock } from "@flotilla/base/clock";

export type SandboxClass = typeof NewestSandbox;

export interface StoryOptions {
  /** Given to `create`. */
  readonly create: { readonly template?: string; readonly envs?: Readonly<Record<string, string>> };
  /** Where the gateway listens. */
  readonly url: string;
  /** A port that is free in the machine. */
  readonly webPort: number;
  /** Receives each call's name and milliseconds. */
  readonly onCall?: (name: string, ms: number) => void;
}

const CALL_MS = 60_000;

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await systemClock.sleep(20);
}

type Step = <T>(name: string, call: () => Promise<T>) => Promise<T>;

/** Throws with the name of the first call that fails or does not end. Returns the number of calls. */
export async function playStory(Sandbox: SandboxClass, options: StoryOptions): Promise<number> {
  let count = 0;
  const step: Step = async (name, call) => {
    count += 1;
    const begunAt = performance.now();
    const result = await limited(name, call);
    options.onCall?.(name, performance.now() - begunAt);
    return result;
  };
  const metadata = { sandboxTestId: `a b/c&d=${randomUUID()}` };
  const sandbox = await step("create", () => Sandbox.create({ ...options.create, metadata, timeoutMs: 300_000 }));
  try {
    await controls(Sandbox, { sandbox, step, metadata });
    await commands(sandbox, step);
    await terminals(sandbox, step);
    await files(sandbox, step);
    await ports(sandbox, step, options);
    await pauses(Sandbox, { sandbox, step });
  } finally {
    await step("kill", () => sandbox.kill());
  }
  assert.equal(await step("isRunning of one that is gone", () => sandbox.isRunning()), false);
  assert.equal(await step("kill of one that is gone", () => Sandbox.kill(sandbox.sandboxId)), false);
  return count;
}

async function limited<T>(name: string, call: () => Promise<T>): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = systemClock.timer(CALL_MS, () => reject(new Error(`${name} has not ended`)));
  try {
    return await Promise.race([call(), promise]);
  } catch (error) {
    throw new Error(`${name}: ${String(error)}`, { cause: error });
  } finally {
    timer.cancel();
  }
}

interface Playing {
  readonly sandbox: NewestSandbox;
  readonly step: Step;
}

async function controls(
  Sandbox: SandboxClass,
  { sandbox, step, metadata }: Playing & { readonly metadata: Readonly<Record<string, string>> },
): Promise<void> {
  const info = await step("getInfo", () => sandbox.getInfo());
  assert.deepEqual([info.sandboxId, info.state, info.metadata], [sandbox.sandboxId, "running", metadata]);
  const found = await step("list by metadata", () => Sandbox.list({ query: { metadata } }).nextItems());
  assert.deepEqual(
    found.map(({ sandboxId }) => sandboxId),
    [sandbox.sandboxId],
  );
  const none = await step("list by other metadata", () =>
    Sandbox.list({ query: { metadata: { sandboxTestId: "no" } } }).nextItems(),
  );
  assert.deepEqual(none, []);
  const { setTimeout: extend } = sandbox;
  await step("setTimeout", () => extend.call(sandbox, 600_000));
  const later = await step("getInfo after setTimeout", () => sandbox.getInfo());
  assert.ok(later.endAt.getTime() - info.endAt.getTime() > 200_000, `${String(later.endAt)} is not later`);
  assert.equal(await step("isRunning", () => sandbox.isRunning()), true);
}

async function commands(sandbox: NewestSandbox, step: Step): Promise<void> {
  const said = await step("commands.run", () =>
    sandbox.commands.run('echo "hi $NAME"; echo no >&2', { envs: { NAME: "é" } }),
  );
  assert.deepEqual([said.stdout, said.stderr, said.exitCode], ["hi é\n", "no\n", 0]);
  const placed = await step("commands.run with cwd and user", () =>
    sandbox.commands.run("pwd; id -un", { cwd: "/tmp", user: "root" }),
  );
  assert.equal(placed.stdout, "/tmp\nroot\n");
  await step("commands.run that fails", () =>
    assert.rejects(sandbox.commands.run("exit 7"), (error: { exitCode?: number }) => error.exitCode === 7),
  );
  await step("commands.run in a place that is not", () =>
    assert.rejects(sandbox.commands.run("true", { cwd: "/gone" })),
  );
  await step("commands.run that takes too long", () =>
    assert.rejects(sandbox.commands.run("sleep 60", { timeoutMs: 500 }), /deadline|timed? ?out/i),
  );
  await step("commands.run of a long argument", () =>
    assert.rejects(sandbox.commands.run(`echo ${"x".repeat(1_000_000)}`)),
  );
  const large = await step("commands.run with much output", () =>
    sandbox.commands.run("head -c 5000000 /dev/zero | tr '\\0' x"),
  );
  assert.equal(large.stdout.length, 5_000_000);
  const broken = await step("commands.run with bytes", () => sandbox.commands.run("printf 'a\\377\\000b'"));
  assert.equal(broken.stdout, "a\ufffd\0b");
  await background(sandbox, step);
}

async function background(sandbox: NewestSandbox, step: Step): Promise<void> {
  const shown: string[] = [];
  const cat = await step("commands.run in the background", () =>
    sandbox.commands.run("cat", {
      background: true,
      stdin: true,
      timeoutMs: 0,
      onStdout: (text) => void shown.push(text),
    }),
  );
  const running = await step("commands.list", () => sandbox.commands.list());
  assert.ok(running.some(({ pid, args }) => pid === cat.pid && args.includes("cat")));
  await step("sendStdin", () => sandbox.commands.sendStdin(cat.pid, "one\n"));
  // What was written before is not shown to the second.
  await step("the echo", () => until(() => shown.join("") === "one\n"));
  const second = await step("commands.connect", () => sandbox.commands.connect(cat.pid, { timeoutMs: 0 }));
  await step("sendStdin again", () => sandbox.commands.sendStdin(cat.pid, "two\n"));
  await step("closeStdin", () => sandbox.commands.closeStdin(cat.pid));
  const ends: readonly CommandHandle[] = [cat, second];
  const results = await step("wait", () => Promise.all(ends.map((each) => each.wait())));
  assert.deepEqual([shown.join(""), results[1]?.stdout], ["one\ntwo\n", "two\n"]);
  const sleeper = await step("commands.run of one to be killed", () =>
    sandbox.commands.run("exec sleep 300", { background: true, timeoutMs: 0 }),
  );
  assert.equal(await step("commands.kill", () => sandbox.commands.kill(sleeper.pid)), true);
  await step("wait for the killed", () => assert.rejects(sleeper.wait(), /signal: killed/));
  assert.equal(await step("commands.kill of none", () => sandbox.commands.kill(4_000_000)), false);
}

async function terminals(sandbox: NewestSandbox, step: Step): Promise<void> {
  let seen = "";
  const terminal = await step("pty.create", () =>
    sandbox.pty.create({
      cols: 80,
      rows: 24,
      timeoutMs: 0,
      onData: (data) => void (seen += Buffer.from(data).toString()),
    }),
  );
  await step("pty.resize", () => sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 }));
  await step("pty.sendInput", () => sandbox.pty.sendInput(terminal.pid, Buffer.from("stty size; exit 3\n")));
  await step("wait for the terminal", () =>
    assert.rejects(terminal.wait(), (error: { exitCode?: number }) => error.exitCode === 3),
  );
  assert.match(seen, /30 100/);
}

async function files(sandbox: NewestSandbox, step: Step): Promise<void> {
  const { files: disk } = sandbox;
  const written = await step("files.write", () => disk.write("story/a b.txt", "text é"));
  assert.match(written.path, /^\/.*\/story\/a b\.txt$/);
  assert.equal(await step("files.read", () => disk.read("story/a b.txt")), "text é");
  const bytes = new Uint8Array(3_000_000).map((_, at) => at);
  await step("files.write of several", () =>
    disk.write([
      { path: "story/one.bin", data: bytes.buffer },
      { path: "story/deep/two.txt", data: "2" },
    ]),
  );
  const back = await step("files.read as bytes", () => disk.read("story/one.bin", { format: "bytes" }));
  assert.equal(Buffer.compare(Buffer.from(back), Buffer.from(bytes)), 0);
  assert.equal(
    await step("files.read of an empty one", async () => {
      await disk.write("story/empty", "");
      return await disk.read("story/empty");
    }),
    "",
  );
  const listed = await step("files.list", () => disk.list("story"));
  assert.deepEqual(
    listed.map(({ name, type }) => [name, type]),
    [
      ["a b.txt", "file"],
      ["deep", "dir"],
      ["empty", "file"],
      ["one.bin", "file"],
    ],
  );
  assert.equal((await step("files.list of two levels", () => disk.list("story", { depth: 2 }))).length, 5);
  assert.equal((await step("files.getInfo", () => disk.getInfo("story/one.bin"))).size, 3_000_000);
  assert.equal(await step("files.exists", () => disk.exists("story/none")), false);
  assert.equal(await step("files.makeDir", () => disk.makeDir("story/new/er")), true);
  assert.equal(await step("files.makeDir again", () => disk.makeDir("story/new/er")), false);
  const moved = await step("files.rename", () => disk.rename("story/empty", "story/moved"));
  assert.match(moved.path, /story\/moved$/);
  const events: string[] = [];
  const watch = await step("files.watchDir", () =>
    disk.watchDir("story", ({ type, name }) => void events.push(`${type} ${name}`), { timeoutMs: 0 }),
  );
  await step("files.remove", () => disk.remove("story/moved"));
  await step("files.remove of a directory", () => disk.remove("story/new"));
  await step("events of the watch", () => until(() => events.includes("remove new")));
  assert.ok(events.includes("remove moved"), events.join());
  await step("stop of the watch", () => watch.stop());
  await step("files.read of none", () => assert.rejects(disk.read("story/none"), /does not exist/));
}

async function ports(sandbox: NewestSandbox, step: Step, { url, webPort }: StoryOptions): Promise<void> {
  const link = await step("downloadUrl", () => sandbox.downloadUrl("story/a b.txt"));
  const answer = await step("the download", () => fetch(link));
  assert.deepEqual([answer.status, await answer.text()], [200, "text é"]);
  const to = await step("uploadUrl", () => sandbox.uploadUrl("story/up.txt"));
  const body = new FormData();
  body.set("file", new Blob(["up"]), "up.txt");
  assert.equal((await step("the upload", () => fetch(to, { method: "POST", body }))).status, 200);
  const packed = await step("an upload that is compressed", () =>
    fetch(to, {
      method: "POST",
      headers: { "content-type": "application/octet-stream", "content-encoding": "gzip" },
      body: gzipSync("unpacked"),
    }),
  );
  assert.equal(packed.status, 200);
  assert.equal(await step("files.read of it", () => sandbox.files.read("story/up.txt")), "unpacked");
  const server = await step("a web server", () =>
    sandbox.commands.run(`exec python3 -u -m http.server ${webPort} --bind 127.0.0.1 2>&1`, {
      background: true,
      timeoutMs: 0,
      cwd: "story",
    }),
  );
  const { host } = new URL(url);
  const [name = ""] = sandbox.getHost(webPort).split(".");
  const page = await step("a page of it", async () => {
    for (;;) {
      const got = await fetch(`http://${host}/${name}/up.txt`);
      if (got.status !== 502) return got;
      await systemClock.sleep(50);
    }
  });
  assert.equal(await page.text(), "unpacked");
  assert.equal(await step("kill of it", () => server.kill()), true);
  await closedPort(`http://${host}/${name}/`, { sandbox, step });
  await connections(`http://${host}/${name}/`, { sandbox, step }, webPort);
}

async function closedPort(url: string, { sandbox, step }: Playing): Promise<void> {
  const closed = await step("a page of a port that is closed", () => fetch(url));
  const { sandboxId, message, port } = (await closed.json()) as Readonly<Record<string, unknown>>;
  assert.deepEqual(
    [closed.status, sandboxId, message],
    [502, sandbox.sandboxId, "The sandbox is running but port is not open"],
  );
  assert.match(new URL(url).pathname, new RegExp(`^/${port}-`));
  const browser = await step("the same in a browser", () =>
    fetch(url, { headers: { "user-agent": "Mozilla/5.0 (X11)" } }),
  );
  assert.match(await browser.text(), /<title>Closed Port Error<\/title>/);
}

/** Accepts a handshake and sends in capitals what arrives. */
const CAPITALS = `
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
connection, _ = listener.accept()
while not connection.recv(4096).endswith(b"\\r\\n\\r\\n"): pass
connection.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: capitals\\r\\n\\r\\nHELLO ")
while data := connection.recv(4096): connection.sendall(data.upper())
`;

/** As WebSockets do: a connection that becomes something else. */
async function connections(url: string, { sandbox, step }: Playing, port: number): Promise<void> {
  const { promise: listens, resolve } = Promise.withResolvers<void>();
  const server = await step("a server of connections", () =>
    sandbox.commands.run(`exec python3 -c '${CAPITALS}' ${port}`, {
      background: true,
      timeoutMs: 0,
      onStdout: () => resolve(),
    }),
  );
  await step("that it listens", () => listens);
  const received = await step("a connection that changes its protocol", async () => {
    const request = get(url, { headers: { connection: "Upgrade", upgrade: "capitals" } });
    const [, socket, head] = (await once(request, "upgrade")) as [unknown, Duplex, Buffer];
    socket.end("there");
    let text = head.toString();
    for await (const chunk of socket as AsyncIterable<Buffer>) text += chunk.toString();
    return text;
  });
  assert.equal(received, "HELLO THERE");
  await step("the end of its server", () => server.wait());
}

async function pauses(Sandbox: SandboxClass, { sandbox, step }: Playing): Promise<void> {
  const kept = await step("a command that stays", () =>
    sandbox.commands.run("exec sleep 1000", { background: true, timeoutMs: 0 }),
  );
  // Its stream ends with the pause.
  kept.wait().catch(() => undefined);
  await step("pause", () => pauseOf(sandbox)());
  const paused = await step("list of paused ones", () => Sandbox.list({ query: { state: ["paused"] } }).nextItems());
  assert.ok(paused.some(({ sandboxId }) => sandboxId === sandbox.sandboxId));
  assert.equal(await step("isRunning of a paused one", () => sandbox.isRunning()), false);
  const again = await step("connect", () => Sandbox.connect(sandbox.sandboxId, { timeoutMs: 120_000 }));
  assert.equal(await step("files.read after the pause", () => again.files.read("story/up.txt")), "unpacked");
  const running = await step("commands.list after the pause", () => again.commands.list());
  assert.ok(running.some(({ pid }) => pid === kept.pid));
}

/** Its name in older versions. */
const pauseOf = (sandbox: NewestSandbox): (() => Promise<unknown>) => {
  const methods = sandbox as unknown as Record<"pause" | "betaPause", (() => Promise<unknown>) | undefined>;
  return (methods.pause ?? methods.betaPause ?? (() => Promise.reject(new Error("it has no pause")))).bind(sandbox);
};
