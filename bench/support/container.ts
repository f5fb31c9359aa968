/**
 * A container engine on the same host, for comparison: `podman run` with runc of the same busybox, from a
 * local image, without a network.
 *
 * Always: images and containers are in a directory of this run and nowhere else. Where podman cannot run a
 * container the reason is kept, and benchmarks print it instead of figures.
 */
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { timed } from "./clock.ts";
import { removeOnInterrupt } from "./interrupt.ts";

const run = promisify(execFile);
const RUN_DEADLINE_MS = 30_000;
const BUSYBOX = "/bin/busybox";
const IMAGE = "localhost/flotilla-bench";
/**
 * runc without the limits on processes and files that podman sets: a host whose root may not raise limits
 * refuses the container because of them. Costs a shell and a sed, a few milliseconds.
 */
const RUNC_WITHOUT_LIMITS = `#!/bin/sh
for word in "$@"; do
  case $before in --bundle) bundle=$word ;; esac
  before=$word
done
[ -z "\${bundle:-}" ] || sed -i 's/"rlimits":\\[[^]]*\\]/"rlimits":[]/' "$bundle/config.json"
exec runc "$@"
`;

export class Containers implements AsyncDisposable {
  readonly #directory: string;
  readonly #runtime: string;
  /** How containers are run, as text. */
  readonly how: string;
  readonly #forget: () => void;

  private constructor(directory: string, runtime: string, how: string) {
    this.#directory = directory;
    this.#runtime = runtime;
    this.how = how;
    this.#forget = removeOnInterrupt(() => this[Symbol.asyncDispose]());
  }

  /** Runs one to check that it works; returns the reason when it does not. */
  static async open(): Promise<Containers | string> {
    const directory = await mkdtemp(path.join(tmpdir(), "flotilla-containers-"));
    const wrapper = path.join(directory, "runc-without-limits");
    const plain = new Containers(directory, "runc", "podman run with runc");
    const wrapped = new Containers(directory, wrapper, "podman run with runc, without process limits");
    try {
      await writeFile(wrapper, RUNC_WITHOUT_LIMITS, { mode: 0o700 });
      await plain.#importImage();
      for (const containers of [plain, wrapped]) {
        try {
          await containers.#runTrue();
          return containers;
        } catch (error) {
          if (containers === wrapped) throw error;
        }
      }
      return "no container could be run";
    } catch (error) {
      await plain[Symbol.asyncDispose]();
      return `no container can be run here: ${reasonOf(error)}`;
    }
  }

  /** Measures from the call until the container's `true` has ended; without removing the container. */
  async runMs(): Promise<number> {
    return await timed(() => this.#runTrue());
  }

  async #runTrue(): Promise<void> {
    // `--cgroups=disabled` would be quicker, but is not how people run containers.
    await this.#podman("run", "--network", "none", IMAGE, "/bin/busybox", "true");
  }

  async #podman(...args: readonly string[]): Promise<void> {
    const within = (name: string): string => path.join(this.#directory, name);
    const places = ["--root", within("store"), "--runroot", within("run"), "--tmpdir", within("tmp")];
    const engine = ["--runtime", this.#runtime, "--cgroup-manager", "cgroupfs", "--events-backend", "none"];
    await run("podman", [...places, ...engine, ...args], { timeout: RUN_DEADLINE_MS });
  }

  async #importImage(): Promise<void> {
    const root = path.join(this.#directory, "image");
    await mkdir(path.join(root, "bin"), { recursive: true });
    await copyFile(BUSYBOX, path.join(root, "bin/busybox"));
    await symlink("busybox", path.join(root, "bin/sh"));
    const archive = path.join(this.#directory, "image.tar");
    await run("tar", ["--create", "--file", archive, "--directory", root, "."]);
    await this.#podman("import", archive, IMAGE);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#forget();
    await this.#podman("rm", "--all", "--force", "--time", "0").catch(() => {});
    await this.#podman("rmi", "--all", "--force").catch(() => {});
    // podman mounts this directory onto itself and leaves it so. (`podman system reset` would also remove
    // networks that are not ours.)
    await run("umount", [path.join(this.#directory, "store", "overlay")]).catch(() => {});
    await rm(this.#directory, { recursive: true, force: true });
  }
}

function reasonOf(error: unknown): string {
  const { stderr, message } = error as { readonly stderr?: string; readonly message: string };
  return (stderr || message).trim().split("\n").at(-1) ?? "unknown";
}
