/**
 * A real image registry for tests: Debian's docker-registry on loopback, with its own storage.
 *
 * Always: it listens on a port chosen by the system (or a given one, to come back after a stop); its storage
 * is a temporary directory unless one is given; it ends with the test process, because it is killed when
 * disposed and otherwise dies with its parent.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export interface TestRegistry extends AsyncDisposable {
  readonly port: number;
  /** `127.0.0.1:<port>`, as in a reference. */
  readonly host: string;
  /** `http://127.0.0.1:<port>`, as a mirror. */
  readonly url: string;
  /** Its storage; give it to another registry to serve the same images. */
  readonly directory: string;
  /** Ends it and keeps the storage. */
  stop(): Promise<void>;
}

export interface RegistryOptions {
  /** Kept when the registry is disposed. */
  readonly directory?: string;
  readonly port?: number;
  /** Requires the user name and password of REGISTRY_USER for everything. */
  readonly isPrivate?: boolean;
}

export const REGISTRY_USER = { name: "sailor", password: "mainsail" } as const;
/** bcrypt of the password above. */
const PASSWORD_HASH = "$2y$05$abcdefghijklmnopqrstuuH5iYFCR9BChlmMaeBEV.8qnBjUadj3a";

export async function startRegistry(options: RegistryOptions = {}): Promise<TestRegistry> {
  const work = await mkdtemp(join(tmpdir(), "flotilla-registry-"));
  const directory = options.directory ?? join(work, "storage");
  await writeFile(join(work, "htpasswd"), `${REGISTRY_USER.name}:${PASSWORD_HASH}\n`);
  const auth = { htpasswd: { realm: "test", path: join(work, "htpasswd") } };
  // JSON is YAML.
  const configuration = {
    version: "0.1",
    log: { level: "info", formatter: "json", accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: directory }, delete: { enabled: true } },
    http: { addr: `127.0.0.1:${options.port ?? 0}` },
    ...(options.isPrivate === true ? { auth } : {}),
  };
  await writeFile(join(work, "config.yml"), JSON.stringify(configuration));
  const child = spawn("setpriv", ["--pdeathsig=TERM", "docker-registry", "serve", join(work, "config.yml")], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { PATH: process.env["PATH"], OTEL_TRACES_EXPORTER: "none" },
  });
  const port = await listeningPort(child);
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  };
  return {
    port,
    host: `127.0.0.1:${port}`,
    url: `http://127.0.0.1:${port}`,
    directory,
    stop,
    [Symbol.asyncDispose]: async () => {
      await stop();
      await rm(work, { recursive: true, force: true });
    },
  };
}

/** Reads the log until it names the port, and keeps reading, so that the pipe never fills. */
async function listeningPort(child: ChildProcess): Promise<number> {
  const { stderr } = child;
  if (stderr === null) throw new Error("docker-registry was started without a pipe");
  const found = Promise.withResolvers<number>();
  const lines: string[] = [];
  createInterface({ input: stderr }).on("line", (line) => {
    if (lines.length < 50) lines.push(line);
    const match = /listening on (?:127\.0\.0\.1|\[::\]):(\d+)/.exec(line);
    if (match !== null) found.resolve(Number(match[1]));
  });
  child.on("error", (error) => found.reject(new Error(`docker-registry cannot be started: ${error.message}`)));
  child.on("exit", () => found.reject(new Error(`docker-registry ended: ${lines.join(" | ")}`)));
  return found.promise;
}
