/**
 * A small world for tests of the network: a host, and an outside with servers, in separate namespaces.
 *
 * `enterWorld` (namespaces.ts) runs the test file again in new namespaces: there the test is a host that no
 * other program sees, with its own /run and resolv.conf, and everything made there ends with it in any case.
 * No packet leaves it: the outside is another namespace, with the addresses of OUTSIDE.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { isIPv4 } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { printEvent } from "@flotilla/contract/event-types";
import { DISK_GB_DEFAULT } from "@flotilla/contract/limits";
import type { MachineNetwork } from "../../contract/src/machines.ts";
import { qcow2Disks } from "../../node/src/disks/disks.ts";
import type { BootRequest, Driver, Vm } from "../../node/src/driver/driver.ts";
import { openQemuDriver } from "../../node/src/driver/qemu/index.ts";
import { makeLog } from "../../node/src/log.ts";
import { type Network, openNetwork } from "../../node/src/network/network.ts";
import { until } from "../support/until.ts";
import { cacheDirectory, deadline, NodePlace, shell } from "../vm/vm-fixture.ts";

export const HOST_ADDRESS = "198.51.100.1";
/** Addresses of the outside; each answers HTTP at OUTSIDE_PORT with `<address> to <caller>`. */
export const OUTSIDE = {
  allowed: "198.51.100.2",
  moved: "198.51.100.3",
  forbidden: "203.0.113.2",
  metadata: "169.254.169.254",
  azure: "168.63.129.16",
  alibaba: "100.100.100.200",
  names: "192.0.2.53",
} as const;
export const OUTSIDE_PORT = 8080;
export const NOTHING = "nothing";

const PERIODS = { intervalMsMin: 300, intervalMsMax: 300, holdMs: 1_700 };

export interface TestMachine {
  readonly vm: Vm;
  readonly request: BootRequest;
  readonly address: string;
  /** Runs a shell line in the guest; returns its output, whatever its exit code. */
  run(line: string): Promise<string>;
  /** The addresses that a name has for the guest. */
  resolve(name: string): Promise<readonly string[]>;
  /** A server's answer, or NOTHING. */
  get(host: string, port?: number): Promise<string>;
}

export class World implements AsyncDisposable {
  readonly place: NodePlace;
  readonly events: string[] = [];
  /** Whether machines that are started afterwards publish on the loopback. */
  publishOnLoopback = false;
  /** The same. */
  blockedNetworks: readonly string[] = [];
  readonly #directory = mkdtempSync(join(tmpdir(), "flotilla-world-"));
  #network: Network | null = null;
  #driver: Driver | null = null;
  #outside: ChildProcess | null = null;
  #count = 0;

  private constructor() {
    this.place = new NodePlace();
  }

  static async make(): Promise<World> {
    const world = new World();
    await world.#makeOutside();
    await world.openAgent();
    await world.#makeTemplate();
    return world;
  }

  get network(): Network {
    if (this.#network === null) throw new Error("no agent runs");
    return this.#network;
  }

  get driver(): Driver {
    if (this.#driver === null) throw new Error("no agent runs");
    return this.#driver;
  }

  /** Sets the current address of each name. */
  names(table: Readonly<Record<string, readonly string[]>>): void {
    const path = join(this.#directory, "names.json");
    writeFileSync(`${path}.new`, JSON.stringify(table));
    renameSync(`${path}.new`, path);
  }

  /** The tested part of a node agent; call it again for a later agent. */
  async openAgent(): Promise<void> {
    const log = makeLog({ level: "warn", clock: systemClock });
    const nodeDirectory = realpathSync(this.place.directory);
    const isPublishing = (): boolean => this.publishOnLoopback;
    const blocked = (): readonly string[] => this.blockedNetworks;
    this.#network = await openNetwork({
      nodeDirectory,
      get publishOnLoopback() {
        return isPublishing();
      },
      get blockedNetworks() {
        return blocked();
      },
      clock: systemClock,
      log,
      onDenied: (machineId, detail) => {
        const { message } = printEvent({ type: "machine.egressDenied", data: { detail } });
        this.events.push(`${machineId}: ${message}`);
      },
      namePeriods: PERIODS,
    });
    const { network } = this;
    const options = {
      nodeDirectory: this.place.directory,
      cacheDirectory,
      accelerator: "auto",
      clock: systemClock,
      log,
    } as const;
    this.#driver = await openQemuDriver({ ...options, network });
  }

  async start(network: MachineNetwork, publishedPorts: readonly number[] = []): Promise<TestMachine> {
    this.#count += 1;
    const id = `mach-${this.#count}`;
    const machine = await this.place.machine(id, 700_000 + this.#count);
    const request = { ...this.place.bootOf(machine, `boot-${id}`), network, publishedPorts };
    const vm = await this.driver.boot(request, deadline());
    await vm.guest.configure({
      hostname: id,
      machineId: String(this.#count).padStart(32, "0"),
      now: systemClock.now(),
      entropy: new Uint8Array(64),
      env: { PATH: "/bin" },
      workdir: "/",
      user: "",
      rootDevice: this.driver.facts.rootDevice,
      rootBytes: null,
      nameservers: vm.network?.nameservers ?? [],
      address: vm.network?.address ?? null,
    });
    return this.#testMachine(vm, request);
  }

  /** The machine as a later agent adopts it. */
  async adopt({ vm, request }: TestMachine): Promise<TestMachine> {
    const again = await this.driver.adopt(request, vm.record, deadline());
    if (again === "gone") throw new Error("the VM is gone");
    return this.#testMachine(again, request);
  }

  #testMachine(vm: Vm, request: BootRequest): TestMachine {
    const run = (line: string): Promise<string> => shell(vm.guest, `{ ${line}\n} 2>&1 || true`);
    const resolve = async (name: string): Promise<readonly string[]> => {
      const answer = await run(`busybox nslookup -type=a ${name}`);
      return [...answer.slice(answer.indexOf("Name:")).matchAll(/^Address: ([0-9.]+)$/gm)].map(
        (match) => match[1] ?? "",
      );
    };
    const get = async (host: string, port = OUTSIDE_PORT): Promise<string> => {
      const [address] = isIPv4(host) ? [host] : await resolve(host);
      if (address === undefined) return NOTHING;
      const answer = await run(`printf 'GET / HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 2 ${address} ${port}`);
      return /^(?!nc:).* to .*$/m.exec(answer)?.[0] ?? NOTHING;
    };
    const pair = execFileSync("nsenter", [`--net=/proc/${vm.record.pid}/ns/net`, "ip", "-4", "-o", "address"], {
      encoding: "utf8",
    });
    const address = / up0 +inet ([0-9.]+)/.exec(pair)?.[1] ?? "";
    if (address === "") throw new Error(`the VM of ${request.machineId} has no uplink: ${pair}`);
    return { vm, request, address, run, resolve, get };
  }

  async #makeTemplate(): Promise<void> {
    const path = join(this.place.directory, "warm-up");
    await qcow2Disks.make({ diskPath: path, root: this.place.image, diskGb: DISK_GB_DEFAULT, uid: 0 });
    const { bootDirectory } = this.place.bootOf(await this.place.machine("mach-template", 709_000), "boot-template");
    const prepared = await this.driver.prepare?.(
      {
        bootId: "boot-template",
        bootDirectory,
        cpus: 1,
        memoryMb: 256,
        uid: 709_000,
        disk: null,
        isFrequent: false,
        makeScratchDisk: null,
      },
      deadline(),
    );
    await prepared?.discard();
  }

  async #makeOutside(): Promise<void> {
    const ip = (...argv: readonly string[]): void => void execFileSync("ip", argv);
    execFileSync("mount", ["-t", "tmpfs", "test", "/run"]);
    const resolvConf = join(this.#directory, "resolv.conf");
    writeFileSync(resolvConf, `nameserver ${OUTSIDE.names}\n`);
    execFileSync("mount", ["--bind", resolvConf, "/etc/resolv.conf"]);
    ip("link", "set", "lo", "up");
    ip("netns", "add", "outside");
    ip("link", "add", "wan", "type", "veth", "peer", "name", "host", "netns", "outside");
    ip("address", "add", `${HOST_ADDRESS}/24`, "dev", "wan");
    ip("link", "set", "wan", "up");
    for (const name of ["lo", "host"]) ip("-n", "outside", "link", "set", name, "up");
    for (const address of Object.values(OUTSIDE)) ip("-n", "outside", "address", "add", `${address}/24`, "dev", "host");
    ip("route", "add", "default", "via", OUTSIDE.allowed);
    this.names({});
    const program = join(import.meta.dirname, "./outside.ts");
    const argv = [
      "netns",
      "exec",
      "outside",
      process.execPath,
      program,
      join(this.#directory, "names.json"),
      OUTSIDE.names,
    ];
    const child = spawn("ip", [...argv, String(OUTSIDE_PORT), ...Object.values(OUTSIDE)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    child.stdout.on("data", (part: Buffer) => {
      said += part.toString();
    });
    child.unref();
    this.#outside = child;
    await until(() => said.includes("listening"), { what: "the outside to listen" });
    child.stdout.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#outside?.kill("SIGKILL");
    await this.#driver?.sweep(new Set());
    await this.#network?.[Symbol.asyncDispose]();
    await this.place[Symbol.asyncDispose]();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
