/**
 * A host that has KVM, wherever the tests run: QEMU emulates an AMD processor with SVM, and machines run in
 * it as they do under hardware virtualization.
 *
 *     await using host = await EmulatedHost.make();
 *     await host.boot();
 *     const { code, output } = await host.run("uname -a");
 *
 * Always: the host's disk outlives its boots, like a real one's, and is deleted by `dispose`. A boot ends
 * only by a power cut: what the host's kernel had not written is lost. With `forgetsUnflushed` the disk also
 * loses what was written and not flushed, like one whose write cache has no battery: nbdkit's cache filter
 * keeps it until a flush, and is killed with the host. With `hasNetwork` it can open connections to this
 * host's loopback, at THIS_HOST, and nothing can connect to it.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createConnection, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tscKhzIn } from "../../node/src/host/processor.ts";
import { until } from "../support/until.ts";
import { cacheDirectory, skipReason as skipVms } from "../vm/vm-fixture.ts";
import { type HostFiles, makeHostFiles } from "./host-files.ts";

/** Why no host can be emulated here; false when one can. */
export const skipReason: string | false =
  skipVms !== false
    ? skipVms
    : process.arch !== "x64"
      ? "the emulated host is an x86-64 one"
      : spawnSync("mmdebstrap", ["--version"]).status !== 0
        ? "no mmdebstrap on this host, which makes the emulated one's disk"
        : false;

/**
 * Five-level page tables and fast string copies are expensive for an emulator, and machines do not need them.
 */
const PROCESSOR = "max,la57=off,erms=off";
/** The same processor after an update that hides an instruction, as microcode and kernels do. */
export const OTHER_PROCESSOR = `${PROCESSOR},rdrand=off`;

/** The same for a host whose disk forgets what was not flushed. */
export const skipReasonUnflushed: string | false =
  skipReason !== false
    ? skipReason
    : spawnSync("nbdkit", ["--version"]).status === 0
      ? false
      : "no nbdkit on this host, which is the disk that loses what was not flushed";

/** This host's 127.0.0.1 as an emulated host with a network sees it. */
export const THIS_HOST = "10.0.2.2";

export interface HostOptions {
  readonly forgetsUnflushed?: boolean;
  readonly hasNetwork?: boolean;
}

/** Deadline of one boot, on a host without other load. */
const BOOT_DEADLINE_MS = 90_000;
const BOOTS_MAX = 3;
const DISK_DEADLINE_MS = 10_000;
const MEMORY_MB = 3072;
/**
 * How much slower than real time the emulated clock runs. Everything takes many times longer in it than on a
 * real host, so deadlines made for real hosts would end healthy work. A higher value makes real pauses
 * longer.
 */
const CLOCK_SLOWDOWN = 3;
const USUAL_TSC_KHZ = 2_000_000;
/**
 * The clock is assumed to be steady, because an emulated one cannot be checked; mitigations against guests
 * are off.
 */
const KERNEL_ARGUMENTS =
  "console=ttyS0 panic=-1 reboot=t quiet mitigations=off no_timer_check tsc=reliable nokaslr init_on_alloc=0 nowatchdog";

export class EmulatedHost implements AsyncDisposable {
  readonly #directory: string;
  readonly #files: HostFiles;
  readonly #forgetsUnflushed: boolean;
  readonly #hasNetwork: boolean;
  #vmm: ChildProcess | null = null;
  /** Serves the disk, where a separate program does. */
  #disk: ChildProcess | null = null;
  #commands: Socket | null = null;
  #mark = "";
  #boots = 0;

  private constructor(directory: string, files: HostFiles, { forgetsUnflushed, hasNetwork }: Required<HostOptions>) {
    this.#directory = directory;
    this.#files = files;
    this.#forgetsUnflushed = forgetsUnflushed;
    this.#hasNetwork = hasNetwork;
  }

  /** Makes its files; it is off. */
  static async make({ forgetsUnflushed = false, hasNetwork = false }: HostOptions = {}): Promise<EmulatedHost> {
    const directory = await mkdtemp(join(tmpdir(), "flotilla-kvm-"));
    const files = await makeHostFiles(directory, cacheDirectory);
    const path = join(directory, "disk");
    const [program, ...operands] = forgetsUnflushed
      ? (["cp", "--sparse=always", files.diskPath, path] as const)
      : (["qemu-img", "create", "-q", "-f", "qcow2", "-b", files.diskPath, "-F", "raw", path] as const);
    const { status, stderr } = spawnSync(program, operands, { encoding: "utf8" });
    if (status !== 0) throw new Error(`the host's disk could not be made: ${stderr}`);
    return new EmulatedHost(directory, files, { forgetsUnflushed, hasNetwork });
  }

  /**
   * Switches it on and waits until it accepts commands. An emulated kernel was seen to hang before that, both
   * its processors in interrupts; then the power is cut and it is switched on again, as an operator would.
   */
  async boot(processor = PROCESSOR): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#switchOn(processor);
      } catch (error) {
        const hasHung = this.#vmm?.exitCode === null;
        await this.cutPower();
        if (!hasHung || attempt === BOOTS_MAX) throw error;
        process.stderr.write(`boot ${this.#boots} of an emulated host has hung; it is switched on again\n`);
      }
    }
  }

  async #switchOn(processor: string): Promise<void> {
    this.#mark = randomUUID();
    this.#boots += 1;
    const socketPath = join(this.#directory, "commands.sock");
    const consolePath = join(this.#directory, `console-${this.#boots}`);
    if (this.#forgetsUnflushed) await this.#serveDisk();
    const vmm = spawn("qemu-system-x86_64", this.#argv(processor, socketPath, consolePath), {
      stdio: ["ignore", "inherit", "inherit"],
    });
    this.#vmm = vmm;
    const isUp = (): boolean => {
      if (vmm.exitCode !== null) return true;
      const seen = readFileSync(consolePath, "utf8");
      if (!seen.includes("takes commands")) throw new Error(seen.slice(-2000));
      return true;
    };
    await until(isUp, { what: "the emulated host to boot", deadlineMs: BOOT_DEADLINE_MS, everyMs: 50 });
    if (vmm.exitCode !== null) throw new Error(`the emulated host did not start: it ended with ${vmm.exitCode}`);
    const commands = createConnection(socketPath);
    await once(commands, "connect");
    this.#commands = commands.setEncoding("utf8");
    commands.on("error", () => {}); // A power cut.
  }

  /**
   * Runs a shell line in the checkout. `onOutput` gets the output as it arrives. Throws when the host ends,
   * or the line takes too long: then the host is off.
   */
  async run(
    line: string,
    deadlineMs = 60_000,
    onOutput: (piece: string) => void = () => undefined,
  ): Promise<{ readonly code: number; readonly output: string }> {
    const commands = this.#commands;
    if (commands === null) throw new Error("the emulated host is off");
    let seen = "";
    const end = new RegExp(`\n${this.#mark} (\\d+)\n$`);
    const take = (piece: string): void => {
      seen += piece;
      onOutput(piece);
    };
    commands.on("data", take);
    try {
      commands.write(`${line}\n`);
      const isOver = (): boolean => {
        if (commands.destroyed) return true;
        if (!end.test(seen)) throw new Error(seen.slice(-2000));
        return true;
      };
      await until(isOver, { what: `the emulated host to run ${line}`, deadlineMs, everyMs: 20 });
    } catch (error) {
      // The output of a running line would be mixed with that of the next.
      await this.cutPower();
      throw error;
    } finally {
      commands.off("data", take);
    }
    const [whole = "", code] = end.exec(seen) ?? [];
    if (code === undefined) throw new Error(`the emulated host ended during ${line}: ${seen.slice(-2000)}`);
    return { code: Number(code), output: seen.slice(0, seen.length - whole.length) };
  }

  /** The output of a line that ends with 0. */
  async must(line: string, deadlineMs?: number): Promise<string> {
    const { code, output } = await this.run(line, deadlineMs);
    if (code !== 0) throw new Error(`${line} ended with ${code}: ${output.slice(-4000)}`);
    return output;
  }

  /** Off immediately, in the middle of everything. */
  async cutPower(): Promise<void> {
    // The disk first: what it has not written is lost, whatever the host still sends.
    for (const each of [this.#disk, this.#vmm]) {
      if (each === null || each.exitCode !== null || each.signalCode !== null) continue;
      each.kill("SIGKILL");
      await once(each, "exit");
    }
    this.#commands?.destroy();
    this.#commands = null;
    this.#vmm = null;
    this.#disk = null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cutPower();
    await rm(this.#directory, { recursive: true });
  }

  async #serveDisk(): Promise<void> {
    const socketPath = join(this.#directory, `disk-${this.#boots}.sock`);
    const serving = ["--foreground", "--unix", socketPath, "--filter=cache", "file", join(this.#directory, "disk")];
    this.#disk = spawn("nbdkit", [...serving, "cache=writeback"], { stdio: ["ignore", "inherit", "inherit"] });
    await until(() => existsSync(socketPath), { what: "the disk to be served", deadlineMs: DISK_DEADLINE_MS });
  }

  /** File for a `-drive` of QEMU. */
  #diskFile(): string {
    if (!this.#forgetsUnflushed) return `file=${escaped(join(this.#directory, "disk"))},format=qcow2`;
    const socket = escaped(join(this.#directory, `disk-${this.#boots}.sock`));
    return `driver=raw,file.driver=nbd,file.server.type=unix,file.server.path=${socket}`;
  }

  #argv(processor: string, socketPath: string, consolePath: string): readonly string[] {
    const { kernelPath, initramfsPath, checkoutPath } = this.#files;
    return [
      ...["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35"],
      ...["-nic", this.#hasNetwork ? "user,model=virtio-net-pci" : "none"],
      ...["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", processor, "-smp", "2", "-m", String(MEMORY_MB)],
      ...["-kernel", kernelPath, "-initrd", initramfsPath, "-append", this.#kernelArguments()],
      ...["-drive", `${this.#diskFile()},if=none,id=disk`],
      ...["-device", "virtio-blk-pci,drive=disk"],
      ...["-drive", `file=${escaped(checkoutPath)},format=raw,readonly=on,if=none,id=checkout`],
      ...["-device", "virtio-blk-pci,drive=checkout"],
      ...["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=commands,name=commands"],
      ...["-chardev", `socket,id=commands,path=${escaped(socketPath)},server=on,wait=off`],
      ...["-chardev", `file,id=console,path=${escaped(consolePath)}`, "-serial", "chardev:console"],
    ];
  }

  /** The emulated counter runs as fast as the real one; its kernel is given a higher rate. */
  #kernelArguments(): string {
    const tscKhz = (tscKhzIn(readFileSync("/proc/cpuinfo", "utf8")) ?? USUAL_TSC_KHZ) * CLOCK_SLOWDOWN;
    return `${KERNEL_ARGUMENTS} tsc_early_khz=${tscKhz} MARK=${this.#mark}`;
  }
}

/** A path in an option of QEMU, which ends at a comma. */
const escaped = (path: string): string => path.replaceAll(",", ",,");
