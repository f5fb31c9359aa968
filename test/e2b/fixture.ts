/**
 * The gateway's helpers as processes of this host, and the environment of E2B's clients.
 *
 * Always: the helpers have an empty home in their own mount namespace, and end with the test.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const SOURCES = fileURLToPath(new URL("../../gateway/e2b/guest/", import.meta.url));
const PROGRAM = `import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[1] + "main.py", run_name="__main__")`;
/** With this Node, for the code interpreter. */
const PATH = `${dirname(process.execPath)}:/usr/sbin:/usr/bin:/sbin:/bin`;
const COMMANDS = fileURLToPath(new URL("../../gateway/e2b/dist/commands", import.meta.url));
const SHELL = `mount -t tmpfs none "$HOME" && cd / || exit
printf %s "$3" | "$2" &
printf %s "$4" | python3 -I -S -B -c "$0" "$1" &
wait`;

interface HostHelper extends AsyncDisposable {
  /** Where the one for commands listens, and the one for files. */
  readonly ports: readonly [number, number];
}

/** Resolves when both listen. */
export async function startHostHelper(): Promise<HostHelper> {
  const ports = [await freePort(), await freePort()] as const;
  const [commands, port] = ports;
  const namespaces = process.getuid?.() === 0 ? ["--mount"] : ["--user", "--map-root-user", "--mount"];
  const given = { token: "", port: commands, environment: { PATH }, stays: true };
  const texts = [given, { token: "", port, commands }].map((each) => JSON.stringify(each));
  const child = spawn("unshare", [...namespaces, "sh", "-c", SHELL, PROGRAM, SOURCES, COMMANDS, ...texts], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/root" },
    detached: true,
  });
  const ended = once(child, "exit");
  const end = async (): Promise<void> => {
    process.kill(-(child.pid ?? 0), "SIGKILL");
    await ended;
  };
  let said = "";
  while (said !== "listening\nlistening\n") {
    const [data] = (await Promise.race([once(child.stdout, "data"), ended])) as [unknown];
    if (!(data instanceof Buffer)) throw new Error(`the helpers did not start: ${said}`);
    said += String(data);
  }
  return { ports, [Symbol.asyncDispose]: end };
}

/** A sandbox of the fake driver whose services are the helpers. */
export const onHost = ({ ports: [commands, files] }: HostHelper) => ({
  template: "local/busybox",
  envs: { FAKE_PORTS: `49983=${commands},49984=${files}` },
});

/** What the clients read at each call. */
export function e2bEnvironment(url: string, key: string): void {
  process.env["E2B_API_URL"] = url;
  process.env["E2B_SANDBOX_URL"] = url;
  process.env["E2B_API_KEY"] = `e2b_${Buffer.from(key.replace("smk_", ""), "base64url").toString("hex")}`;
}

/** A port of this host that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port is free");
  return address.port;
}
