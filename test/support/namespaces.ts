/**
 * Network namespaces for tests: the test as a host that no other program sees, and further hosts that dial
 * out to it.
 *
 * Everything made here ends with the test's namespaces, in any case. Needs root.
 */
import { execFileSync, spawnSync } from "node:child_process";

const MARK = "--in-its-own-world";
const BRIDGE = "lan";

/** The address of the test's own host on the bridge. */
export const HOST_ADDRESS = "10.77.0.1";

/** Why namespaces cannot be used here, for `skip`; false: they can. */
export const namespacesSkipReason: string | false =
  process.getuid?.() !== 0
    ? "network namespaces need root"
    : ["ip", "nft", "unshare"].some((program) => spawnSync(program, ["--version"]).error !== undefined)
      ? "network namespaces need ip, nft and unshare"
      : false;

/**
 * Runs the test file again in new network, mount and process namespaces. Returns in these only; otherwise
 * ends the process like the tests in them.
 */
export function enterWorld(file: string): void {
  if (process.argv.includes(MARK)) return;
  const namespaces = ["--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"];
  const again = [process.execPath, ...process.execArgv, file, MARK];
  const { status } = spawnSync("unshare", [...namespaces, "--", ...again], { stdio: "inherit" });
  process.exit(status ?? 1);
}

const run = (program: string, ...argv: readonly string[]): string => execFileSync(program, argv, { encoding: "utf8" });

/**
 * Makes the bridge to which hosts are connected, with the test's own address. Call it once, in the test's
 * namespaces.
 */
export function openLan(): void {
  run("mount", "-t", "tmpfs", "test", "/run");
  run("ip", "link", "set", "lo", "up");
  run("ip", "link", "add", BRIDGE, "type", "bridge");
  run("ip", "address", "add", `${HOST_ADDRESS}/24`, "dev", BRIDGE);
  run("ip", "link", "set", BRIDGE, "up");
}

/** Another host on the bridge. It accepts no connection, so it can only dial out, unless it is open. */
export class FarHost {
  readonly name: string;
  readonly address: string;
  readonly #cable: string;

  /** `number`: from 2 to 254; the last part of its address. `isOpen`: it accepts connections. */
  constructor(name: string, number: number, { isOpen = false } = {}) {
    this.name = name;
    this.address = `10.77.0.${number}`;
    this.#cable = `to-${name}`;
    run("ip", "netns", "add", name);
    run("ip", "link", "add", this.#cable, "type", "veth", "peer", "name", "eth0", "netns", name);
    run("ip", "link", "set", this.#cable, "master", BRIDGE, "up");
    this.#inside("ip", "address", "add", `${this.address}/24`, "dev", "eth0");
    for (const device of ["lo", "eth0"]) this.#inside("ip", "link", "set", device, "up");
    if (isOpen) return;
    this.#inside("nft", "add table inet wall");
    this.#inside("nft", "add chain inet wall incoming { type filter hook input priority 0; policy drop; }");
    this.#inside("nft", "add chain inet wall outgoing { type filter hook output priority 0; policy accept; }");
    this.#accept();
  }

  /**
   * What runs a program on this host. Unlike `ip netns exec` it leaves /sys, and with it control groups, as
   * they are.
   */
  get launcher(): readonly string[] {
    return ["nsenter", `--net=/run/netns/${this.name}`, "--"];
  }

  /** Unplugs the cable: the host sees that its link is down. */
  unplug(): void {
    run("ip", "link", "set", this.#cable, "down");
  }

  plugIn(): void {
    run("ip", "link", "set", this.#cable, "up");
  }

  /** Drops everything that arrives, without a sign. What the host sends arrives. */
  deafen(): void {
    this.#inside("nft", "insert rule inet wall incoming iifname eth0 drop");
  }

  /**
   * Ends `deafen`; connections that were open stay dead in both directions, as behind a translator that has
   * lost them.
   */
  hearOnlyNew(): void {
    const ports = this.#openPorts();
    this.#inside("nft", "flush chain inet wall incoming");
    if (ports.length > 0) {
      this.#inside("nft", `add rule inet wall incoming tcp dport { ${ports.join(", ")} } drop`);
      this.#inside("nft", `add rule inet wall outgoing tcp sport { ${ports.join(", ")} } drop`);
    }
    this.#accept();
  }

  #accept(): void {
    this.#inside("nft", "add rule inet wall incoming iifname lo accept");
    this.#inside("nft", "add rule inet wall incoming ct state established,related accept");
    this.#inside("nft", "add rule inet wall incoming meta l4proto icmp accept");
  }

  /** The ports of its established TCP connections. */
  #openPorts(): readonly number[] {
    const lines = this.#inside("cat", "/proc/net/tcp").split("\n").slice(1);
    const fields = lines.map((line) => line.trim().split(/\s+/)).filter(([, , , state]) => state === "01");
    return fields.map(([, local = ""]) => Number.parseInt(local.split(":")[1] ?? "", 16));
  }

  #inside(program: string, ...argv: readonly string[]): string {
    return run("ip", "netns", "exec", this.name, program, ...argv);
  }
}
