/**
 * The gateway's helper as a process of this host, and the environment of E2B's clients.
 *
 * Always: the helper has an empty home in its own mount namespace, and ends with the test.
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
const SHELL = 'mount -t tmpfs none "$HOME" && cd / && exec python3 -I -S -B -c "$0" "$1"';

interface HostHelper extends AsyncDisposable {
  readonly port: number;
}

/** Resolves when it listens. */
export async function startHostHelper(): Promise<HostHelper> {
  const port = await freePort();
  const namespaces = process.getuid?.() === 0 ? ["--mount"] : ["--user", "--map-root-user", "--mount"];
  const child = spawn("unshare", [...namespaces, "sh", "-c", SHELL, PROGRAM, SOURCES], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/root" },
  });
  const ended = once(child, "exit");
  child.stdin.end(JSON.stringify({ token: "", port, environment: { PATH } }));
  const [line] = (await Promise.race([once(child.stdout, "data"), ended])) as [unknown];
  if (String(line) !== "listening\n") throw new Error(`the helper did not start: ${String(line)}`);
  return {
    port,
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

/** A sandbox of the fake driver whose service is the helper. */
export const onHost = ({ port }: HostHelper) => ({
  template: "local/busybox",
  envs: { FAKE_PORTS: `49983=${port}` },
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
