/**
 * Machines that come from other nodes: receives their files, and makes a stopped machine of them, or a point
 * (arrived-point.ts).
 *
 * Owns `<node>/incoming/<move>/`: `request.json`, `root.ext4`, and `machine/`, which becomes the machine's
 * directory by one rename. For a disk that is sent while its machine runs there are `disk.early` and `point`,
 * the id of the last complete point.
 *
 * Always:
 * - A file has its name only when its content's hash is the sender's and it is synced. Before, it is
 *   `<name>.part`.
 * - While `point` exists, each block of `disk.early` that has not changed since that point is on the disk
 *   with the sender's content, and was compared by its hash. So the disk is complete after one stream of what
 *   changed since then.
 * - A machine comes into being as a whole: journal and files appear together under the machine's id.
 * - No disk of a machine that is here already is replaced.
 * - Memory comes with the machine only when all of it has arrived. The journal then says what its files are
 *   here, after their content was compared with the sender's.
 * - A move is worked on by one request at a time; a newer request for the same file ends the older one.
 *
 * A crash leaves the directory, and the move continues with what has arrived. The server says of which moves
 * it is to be removed. What no request has touched for KEPT_MS is removed when the agent starts.
 */
import { chmod, chown, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { ObservedMachine } from "@flotilla/contract/link/link";
import { readIncomingMachine } from "@flotilla/contract/link/generated";
import type { MovedPart } from "@flotilla/contract/link/moved-parts";
import type {
  AwaitedFile,
  IncomingMachine,
  IncomingState,
  MovedMemory,
  MovedRoot,
} from "@flotilla/contract/link/moves";
import type { PointFacts } from "@flotilla/contract/link/points";
import type { MemoryFiles } from "../driver/driver.ts";
import { bytesForNewDisks } from "../disks/disks.ts";
import { syncToDisk } from "../host/sync-to-disk.ts";
import { contentHash, resumeAt, type WrittenBlocks, writeBlocks, writtenHash } from "../images/blocks.ts";
import type { HeldRoot } from "../images/images.ts";
import { digestsOf } from "../images/moved-roots.ts";
import { DiskFull } from "../images/space.ts";
import { discardMemory } from "../machines/actions/suspend.ts";
import { addArrivedPoint } from "./arrived-point.ts";
import { ContentDiffers } from "./content-differs.ts";
import { UnknownPoint } from "../machines/disk-changes.ts";
import type { Fleet } from "../machines/fleet.ts";
import { type Journal, JournalFile } from "../machines/journal.ts";
import { type Arrival, LiveArrivals } from "./live-arrivals.ts";
import type { MachineDeps } from "../machines/machine-deps.ts";
import { movedPath } from "./outgoing.ts";
import { bootsPathOf, diskPathOf, logsPathOf, memoryBasePathOf, memoryPathOf } from "../machines/paths.ts";
import type { SupervisedMachine } from "../machines/node-machine.ts";

/** Longer than a move may take. */
const KEPT_MS = 48 * 60 * 60_000;
const SPACE_CHECK_BYTES = 64 * 2 ** 20;
const MOVE_ID = /^op-[0-9a-f]{32}$/;

/** The node has an earlier copy of the machine: the server must remove it first. */
export class OlderCopy extends Error {}
/** No move with this id was begun here, or it was discarded. */
export class UnknownMove extends Error {}

/** How a part has arrived. */
interface ReceivedPart {
  readonly bytes: number;
  /** Hash of the content of a file; empty: the part is none. */
  readonly sha256: string;
  /**
   * When the source paused the machine, of which the rest has arrived: epoch milliseconds; null: another part
   * has.
   */
  readonly pausedAt: number | null;
}

export interface IncomingOptions {
  /** `<node>/incoming`. */
  readonly directory: string;
  readonly fleet: Fleet;
  readonly deps: MachineDeps;
  readonly log: Log;
}

export class Incoming {
  readonly #options: IncomingOptions;
  readonly #turns = new Map<string, Promise<unknown>>();
  /** By move and file: ends a request that receives it. */
  readonly #receiving = new Map<string, AbortController>();
  /** null: the driver takes no machine that runs. */
  readonly #live: LiveArrivals | null;
  /** Moves whose files are being removed because they have ended. */
  readonly #discarding = new Set<string>();

  constructor(options: IncomingOptions) {
    this.#options = options;
    const { live } = options.deps.driver;
    this.#live = live === null ? null : new LiveArrivals({ ...options, live });
  }

  /** Finds what an earlier agent left. Call after the journals were read. */
  async open(): Promise<void> {
    const { directory, deps, log } = this.#options;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    for (const name of await readdir(directory)) {
      try {
        const { mtimeMs } = await stat(join(directory, name));
        const request = await this.#request(name).catch(() => null);
        if (request === null || deps.clock.now() - mtimeMs > KEPT_MS) {
          await rm(join(directory, name), { recursive: true, force: true });
          log.warn({ name }, "removed the files of a move that was not finished");
        } else deps.imagesArriving.set(name, digestsOf(request.image, request.root));
      } catch (error) {
        log.warn({ name, reason: messageOf(error) }, "the files of a move that was not finished cannot be removed");
      }
    }
  }

  /** Begins to receive a machine, or continues. Throws OlderCopy, and DiskFull when it does not fit. */
  begin(machineId: string, move: string, request: IncomingMachine): Promise<IncomingState> {
    return this.#inTurn(move, async () => {
      const { fleet, deps } = this.#options;
      const known = { takesEarly: true, takesLive: this.#live !== null, point: null };
      if (this.#arrived(machineId, move) !== null || deps.points.find(machineId) !== undefined)
        return { ...known, isMachine: true, awaited: [] };
      if (fleet.find(machineId) !== undefined)
        throw new OlderCopy(`this node has an earlier copy of machine ${machineId}`);
      if (request.memory !== null && deps.driver.memory === null)
        throw new Error("this node cannot keep the memory of machines");
      deps.imagesArriving.set(move, digestsOf(request.image, request.root));
      await this.#live?.discard(move);
      await rm(bootsPathOf(this.#staging(move)), { recursive: true, force: true });
      await mkdir(logsPathOf(this.#staging(move)), { recursive: true, mode: 0o700 });
      await this.#replace(move, request);
      const path = join(this.#place(move), "request.json");
      await writeFile(`${path}.new`, JSON.stringify(request), { mode: 0o600 });
      await syncToDisk(`${path}.new`);
      await rename(`${path}.new`, path);
      const awaited = await this.#awaited(move, request);
      await this.#checkSpace(move, request, awaited);
      const isDiskAwaited = awaited.some(({ name }) => name === "disk");
      return { ...known, isMachine: false, awaited, point: isDiskAwaited ? await this.#point(move) : null };
    });
  }

  /**
   * An earlier request of the move: what came for it may not fit. Throws OlderCopy when it is the newer one.
   */
  async #replace(move: string, request: IncomingMachine): Promise<void> {
    const before = await this.#request(move).catch(() => null);
    if (before === null) return;
    if (before.generation > request.generation) throw new OlderCopy("a newer request of this move is known");
    if (baseOf(before)?.sha256 === baseOf(request)?.sha256) return;
    const path = this.#path(move, "memory-base");
    for (const each of [path, `${path}.part`]) await rm(each, { force: true });
  }

  /** Receives a part. A file has its name then. Throws ContentDiffers and DiskFull. */
  async receive(
    machineId: string,
    move: string,
    part: MovedPart,
    source: AsyncIterable<Buffer>,
    onBytes: (bytes: number) => void,
  ): Promise<ReceivedPart> {
    const key = `${move} ${part.kind === "file" ? part.name : part.kind === "diskRound" ? "disk" : part.kind}`;
    this.#receiving.get(key)?.abort(new Error("a newer request sends the file"));
    const own = new AbortController();
    this.#receiving.set(key, own);
    const stream = untilAborted(source, own.signal);
    let bytes = 0;
    const onMore = (more: number): void => {
      own.signal.throwIfAborted();
      bytes += more;
      onBytes(bytes);
    };
    const received = this.#inTurn(move, async () => {
      if (part.kind === "memoryRounds" || part.kind === "rest") {
        const pausedAt = await this.#receiveLive(machineId, move, part, stream, onMore);
        return { bytes, sha256: "", pausedAt };
      }
      const sha256 = await this.#receiveFile(move, part, stream, onMore, own.signal);
      return { bytes, sha256, pausedAt: null };
    });
    return await received.finally(() => this.#receiving.get(key) === own && this.#receiving.delete(key));
  }

  /** Resolves with the content's hash when the file has its name, or the point is complete. */
  async #receiveFile(
    move: string,
    part: Extract<MovedPart, { kind: "file" | "diskRound" }>,
    stream: AsyncIterable<Buffer>,
    onMore: (more: number) => void,
    signal: AbortSignal,
  ): Promise<string> {
    const { since } = part;
    const [name, from] = part.kind === "file" ? [part.name, part.from] : ["disk", 0];
    const path = this.#path(move, name);
    const isEarly = part.kind === "diskRound" || since !== null;
    const arriving = isEarly ? this.#earlyPath(move) : `${path}.part`;
    if (!isEarly && (await resumeAt(arriving)) < from)
      throw new Error(`there is no part of ${name} up to byte ${from}`);
    if (since !== null && since !== (await this.#point(move))) throw new UnknownPoint(`there is no point ${since}`);
    // Durably, before the file is something else.
    if (name === "disk" && since === null) await this.#forgetEarly(move);
    let unchecked = 0;
    const mode = since === null && from === 0 ? "w" : "r+";
    const written = await this.#write(arriving, mode, stream, async (more) => {
      onMore(more);
      unchecked += more;
      if (unchecked < SPACE_CHECK_BYTES) return;
      unchecked = 0;
      if ((await bytesForNewDisks(this.#place(move))) < 0) throw new DiskFull("it filled up while a machine arrived");
    });
    const found = isEarly ? writtenHash(arriving, written, signal) : contentHash(arriving, signal);
    if ((await found) !== written.sha256) {
      if (isEarly) await this.#forgetEarly(move);
      await rm(arriving, { force: true });
      throw new ContentDiffers(`the content of ${name} differs from what was sent; it is sent again`);
    }
    if (part.kind === "diskRound") await this.#completePoint(move, part.point);
    else {
      await rename(arriving, path);
      await syncToDisk(dirname(path));
      if (since !== null) await rm(this.#pointPath(move), { force: true });
    }
    return written.sha256;
  }

  async #completePoint(move: string, point: string): Promise<void> {
    const path = this.#pointPath(move);
    await writeFile(`${path}.new`, point, { mode: 0o600 });
    await syncToDisk(`${path}.new`);
    await rename(`${path}.new`, path);
    await syncToDisk(this.#place(move));
  }

  /**
   * The memory of a machine that runs, or the rest of it, with which it is a machine of this node: resolves
   * then with when the source paused it.
   */
  async #receiveLive(
    machineId: string,
    move: string,
    part: Extract<MovedPart, { kind: "memoryRounds" | "rest" }>,
    stream: AsyncIterable<Buffer>,
    onBytes: (more: number) => void,
  ): Promise<number | null> {
    const live = this.#live;
    if (live === null) throw new Error("this node takes no machine that runs");
    const { fleet, deps } = this.#options;
    const generation = part.kind === "rest" ? part.generation : null;
    const request = await this.#request(move);
    const early = await stat(this.#earlyPath(move)).catch(() => null);
    const [missing] = (await this.#awaited(move, request)).filter(({ name }) => name !== "disk");
    if (early === null || missing !== undefined)
      throw new UnknownPoint(`${missing?.name ?? "the disk"} of machine ${machineId} has not arrived`);
    if ((generation !== null && fleet.removedAt(machineId) >= generation) || fleet.find(machineId) !== undefined)
      throw new OlderCopy(`machine ${machineId} is on this node already, or was removed from it`);
    const { root, rootPath } = await this.#base(move, request);
    const {
      uid: _uid,
      boot: _boot,
      ...journal
    } = this.#journal(machineId, move, { ...request, generation: generation ?? request.generation }, { root, uid: 0 });
    const arrival: Arrival = {
      ...{ move, machineId, rootPath, journal, hasBase: baseOf(request) !== null },
      ...{ staging: this.#staging(move), earlyDiskPath: this.#earlyPath(move) },
    };
    if (generation === null) {
      await live.receiveRounds(arrival, part.point, stream, onBytes);
      return null;
    }
    const pausedAt = await live.finish(arrival, part.point, stream, onBytes).catch(async (error: unknown) => {
      if (!(error instanceof UnknownPoint)) await this.#forgetEarly(move);
      throw error;
    });
    await rm(this.#place(move), { recursive: true, force: true });
    deps.imagesArriving.delete(move);
    return pausedAt;
  }

  /** The point up to which the early part of the disk is complete; null: there is none. */
  async #point(move: string): Promise<string | null> {
    const id = await readFile(this.#pointPath(move), "utf8").catch(() => null);
    const isThere = await stat(this.#earlyPath(move)).catch(() => null);
    return isThere === null ? null : id;
  }

  async #forgetEarly(move: string): Promise<void> {
    await rm(this.#pointPath(move), { force: true });
    await syncToDisk(this.#place(move));
    await rm(this.#earlyPath(move), { force: true });
  }

  async #write(
    path: string,
    mode: "w" | "r+",
    stream: AsyncIterable<Buffer>,
    onBytes: (more: number) => Promise<void>,
  ): Promise<WrittenBlocks> {
    await using file = await open(path, mode, 0o600);
    return await writeBlocks(file, stream, onBytes);
  }

  /**
   * Makes the files a stopped machine of this node. Does nothing when they are one already. `hasMemory`:
   * false when its memory was discarded after it had arrived.
   */
  commit(machineId: string, move: string, { hasMemory }: CommitOptions): Promise<ObservedMachine> {
    return this.#inTurn(move, async () => {
      const arrived = this.#arrived(machineId, move);
      if (arrived !== null) {
        if (!hasMemory) await forgetMemory(arrived);
        return arrived.observe();
      }
      const { fleet, deps } = this.#options;
      const requested = await this.#request(move);
      const request = hasMemory ? requested : { ...requested, memory: null };
      const [missing] = await this.#awaited(move, request);
      if (missing !== undefined) throw new Error(`${missing.name} of machine ${machineId} has not arrived`);
      if (fleet.removedAt(machineId) >= request.generation || fleet.find(machineId) !== undefined)
        throw new OlderCopy(`machine ${machineId} is on this node already, or was removed from it`);
      const { users, machinesDirectory } = deps;
      const { root, rootPath } = await this.#base(move, request);
      const uid = users.take();
      try {
        const journal = this.#journal(machineId, move, request, { root, uid });
        const directory = join(machinesDirectory, machineId);
        const complete = await this.#finish(move, { directory, rootPath, journal, memory: request.memory });
        const admitted = await fleet.admit(complete, this.#staging(move));
        await rm(this.#place(move), { recursive: true, force: true });
        deps.imagesArriving.delete(move);
        return admitted.observe();
      } catch (error) {
        if (fleet.find(machineId) === undefined) users.free(uid);
        throw error;
      }
    });
  }

  /** As `commit`, for a point: it arrives as a machine whose id is the point's. */
  commitPoint(pointId: string, move: string, facts: PointFacts): Promise<void> {
    return this.#inTurn(move, async () => {
      const { deps } = this.#options;
      if (deps.points.find(pointId) === undefined) {
        const request = await this.#request(move);
        const [missing] = await this.#awaited(move, request);
        if (missing !== undefined) throw new Error(`${missing.name} of ${pointId} has not arrived`);
        const { root, rootPath } = await this.#base(move, request);
        await addArrivedPoint(deps, { pointId, facts, request, staging: this.#staging(move), root, rootPath });
      }
      await rm(this.#place(move), { recursive: true, force: true });
      deps.imagesArriving.delete(move);
    });
  }

  /** Removes what has arrived. What is a machine already stays. */
  discard(move: string): Promise<void> {
    for (const [key, controller] of this.#receiving)
      if (key.startsWith(`${move} `)) controller.abort(new Error("the move was abandoned"));
    return this.#inTurn(move, async () => {
      await this.#live?.discard(move);
      await rm(this.#place(move), { recursive: true, force: true });
      this.#options.deps.imagesArriving.delete(move);
    });
  }

  /** Moves of which something has arrived here that is not a machine yet, or may have. */
  get moves(): readonly string[] {
    return [...this.#options.deps.imagesArriving.keys()];
  }

  /**
   * Removes what has arrived of moves that have ended, in the background. What cannot be removed now is in
   * `moves` still.
   */
  discardEnded(moves: readonly string[]): void {
    const { deps, log } = this.#options;
    for (const move of moves.filter((each) => deps.imagesArriving.has(each) && !this.#discarding.has(each))) {
      this.#discarding.add(move);
      void this.discard(move)
        .then(() => log.info({ move }, "removed what had arrived of a move that has ended"))
        .catch((error: unknown) => log.warn({ error, move }, "parts of a move that has ended cannot be removed yet"))
        .finally(() => this.#discarding.delete(move));
    }
  }

  #arrived(machineId: string, move: string): SupervisedMachine | null {
    const machine = this.#options.fleet.find(machineId) ?? null;
    return machine !== null && machine.known !== null && machine.known.journal.arrivedBy === move ? machine : null;
  }

  /** The files that are not complete yet, in the order in which they are needed. */
  async #awaited(move: string, request: IncomingMachine): Promise<AwaitedFile[]> {
    const { images } = this.#options.deps;
    const hasRoot = (await images.findRoot(request.image, request.root)) !== null;
    const names = [
      ...(hasRoot ? [] : ["root"]),
      ...((await this.#needsBase(move, request)) ? ["memory-base"] : []),
      ...request.files.map(({ name }) => name),
      ...(request.memory === null ? [] : ["memory"]),
    ];
    const awaited: AwaitedFile[] = [];
    for (const name of names) {
      const path = this.#path(move, name);
      const isComplete = await stat(path).then(
        () => true,
        () => false,
      );
      if (!isComplete) awaited.push({ name, from: await resumeAt(`${path}.part`) });
    }
    return awaited;
  }

  /** Whether the base of the memory must be sent. An equal file of this node gets its name here. */
  async #needsBase(move: string, request: IncomingMachine): Promise<boolean> {
    const base = baseOf(request);
    if (base === null) return false;
    const path = this.#path(move, "memory-base");
    const found = await stat(path).catch(() => null);
    return found === null && !(await this.#options.deps.memoryBases.linkEqual(base, path));
  }

  async #checkSpace(move: string, request: IncomingMachine, awaited: readonly AwaitedFile[]): Promise<void> {
    const sizes = new Map([
      ["root", request.root.bytes],
      ["memory", request.memory?.bytes ?? 0],
      ["memory-base", baseOf(request)?.bytes ?? 0],
      ...request.files.map((file) => [file.name, file.bytes] as const),
    ]);
    const early = await stat(this.#earlyPath(move)).catch(() => null);
    const rest = ({ name, from }: AwaitedFile): number =>
      Math.max(0, (sizes.get(name) ?? 0) - (name === "disk" && early !== null ? early.blocks * 512 : from));
    const needed = awaited.reduce((sum, file) => sum + rest(file), 0);
    const short = needed - (await bytesForNewDisks(this.#place(move)));
    if (short > 0)
      throw new DiskFull(`the machine needs ${megabytes(needed)} MB, and ${megabytes(short)} MB are missing`);
  }

  /** The file that the disk is based on. */
  async #base(move: string, request: IncomingMachine): Promise<{ readonly root: HeldRoot; readonly rootPath: string }> {
    const { images } = this.#options.deps;
    const found = await images.findRoot(request.image, request.root);
    const root =
      found ?? (await images.addRoot({ image: request.image, root: request.root, path: this.#path(move, "root") }));
    const image = await images.findByDigest(root.digest);
    if (image === undefined) throw new Error(`image ${root.digest} was removed from the node`);
    return { root, rootPath: (await images.rootNamed(image, root.name)).rootPath };
  }

  #journal(
    machineId: string,
    move: string,
    { generation }: IncomingMachine,
    { root, uid }: { readonly root: HeldRoot; readonly uid: number },
  ): Journal {
    return {
      machineId,
      uid,
      generation,
      desired: "stopped",
      spec: null,
      imageDigest: root.digest,
      rootName: root.name,
      hasDisk: true,
      arrivedBy: move,
      boot: null,
      ending: null,
    };
  }

  /** Completes the directory that becomes the machine's. Resolves with its journal. */
  async #finish(
    move: string,
    {
      directory,
      rootPath,
      journal,
      memory,
    }: {
      readonly directory: string;
      readonly rootPath: string;
      readonly journal: Journal;
      readonly memory: MovedMemory | null;
    },
  ): Promise<Journal> {
    const { disks, driver } = this.#options.deps;
    const staging = this.#staging(move);
    const diskPath = diskPathOf(staging);
    await disks.rebase({ diskPath, directory, rootPath });
    if (process.getuid?.() === 0) await chown(diskPath, journal.uid, journal.uid);
    const memoryPaths = [memoryPathOf(staging), memoryBasePathOf(staging)];
    for (const path of memoryPaths) await rm(`${path}.part`, { force: true });
    if (memory === null) await rm(memoryPathOf(staging), { force: true });
    if ((memory?.base ?? null) === null) await rm(memoryBasePathOf(staging), { force: true });
    // VMMs of other users map it.
    else await chmod(memoryBasePathOf(staging), 0o444);
    const moved = memory === null ? null : ((await driver.memory?.files({ directory: staging, diskPath })) ?? null);
    const complete = { ...journal, ...keptMemory(memory, moved) };
    await new JournalFile(staging).save(complete);
    await syncToDisk(staging);
    return complete;
  }

  async #request(move: string): Promise<IncomingMachine> {
    try {
      return readIncomingMachine(JSON.parse(await readFile(join(this.#place(move), "request.json"), "utf8")));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      throw new UnknownMove(`move ${move} was not begun on this node`);
    }
  }

  #place(move: string): string {
    if (!MOVE_ID.test(move)) throw new Error(`${move} is not the id of a move`);
    return join(this.#options.directory, move);
  }

  #staging(move: string): string {
    return join(this.#place(move), "machine");
  }

  #earlyPath(move: string): string {
    return join(this.#place(move), "disk.early");
  }

  #pointPath(move: string): string {
    return join(this.#place(move), "point");
  }

  #path(move: string, name: string): string {
    return name === "root" ? join(this.#place(move), "root.ext4") : movedPath(this.#staging(move), name);
  }

  /** One piece of work for a move after the other. */
  #inTurn<T>(move: string, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(move) ?? Promise.resolve();
    const done = before.then(work);
    const settled = done.catch(() => undefined);
    this.#turns.set(move, settled);
    void settled.then(() => this.#turns.get(move) === settled && this.#turns.delete(move));
    return done;
  }
}

/**
 * The owner of a machine that came with its memory has discarded that since. Only before the first request
 * for the machine.
 */
async function forgetMemory(arrived: SupervisedMachine): Promise<void> {
  const machine = arrived.atRest();
  const { spec, memory = null } = arrived.known.journal;
  if (machine !== null && spec === null && memory !== null) await discardMemory(machine);
}

export interface CommitOptions {
  readonly hasMemory: boolean;
}

/** The same chunks; throws the signal's reason when it is aborted, also while none come. */
async function* untilAborted(source: AsyncIterable<Buffer>, signal: AbortSignal): AsyncGenerator<Buffer, void> {
  const chunks = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await orAborted(chunks.next(), signal);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // Not waited for: a source that is silent ends only after its next chunk.
    void chunks.return?.().catch(() => undefined);
  }
}

/** The base of the memory that comes with the machine, or will come. */
const baseOf = ({ memory, memoryBase }: IncomingMachine): MovedRoot | null =>
  memory === null ? memoryBase : memory.base;

/** What the journal says of memory that came with the machine. It is kept until the server says otherwise. */
function keptMemory(memory: MovedMemory | null, moved: MemoryFiles | null): Partial<Journal> {
  if (memory === null) return {};
  const { memoryId, suspendedAt, guestBootId, workload, keepsCommands = false } = memory;
  return { keepsMemory: true, memory: { memoryId, suspendedAt, guestBootId, workload, keepsCommands, moved } };
}

const megabytes = (bytes: number): number => Math.ceil(bytes / 1024 ** 2);
