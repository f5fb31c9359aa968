/**
 * The node's reports to the server: registers the node, then reports every HEARTBEAT_PERIOD_MS and
 * immediately after a change.
 *
 * Owns `<node directory>/credential` (0600), which authenticates the node after its registration. outbox.ts
 * holds what is to be reported; machines/ observes it.
 *
 * Always:
 * - A report after a failure, and the first one, holds all machines and all open runs, so nothing depends on
 *   an earlier report having arrived.
 * - An event stays in the outbox until a report that held it was accepted; a run stays in the journal of runs
 *   until the server has acknowledged it.
 * - Images that come or go are listed and reported together, once a second at most, and less often when a
 *   list takes long.
 * - Without a server the node continues to run, and tries again forever.
 * - When the server no longer knows the credential, the node registers with its join token again.
 *
 * One loop; a change while a report is under way leads to the next one. If the process dies, only events that
 * were not sent yet are lost: states and runs are in the journals.
 */
import { randomBytes } from "node:crypto";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import {
  type AbsentMachine,
  HEARTBEAT_PERIOD_MS,
  type Heartbeat,
  type ImageReport,
  type NodeFacts,
  type NodeImage,
  type NodeResources,
  type ObservedMachine,
} from "@flotilla/contract/link/link";
import { readHeartbeatAnswer, readRegistrationAnswer } from "@flotilla/contract/link/generated";
import { type LinkVersions, OWN_LINK_VERSIONS, versionRefusal } from "@flotilla/contract/link/version";
import { RELEASE } from "@flotilla/contract/release";
import { EVENTS_PER_REPORT_MAX, RUNS_PER_COMPLETE_REPORT_MAX, RUNS_PER_REPORT_MAX } from "@flotilla/contract/runs";
import type { RunJournal } from "../machines/run-journal.ts";
import { ImageReports } from "./image-report.ts";
import type { Outbox } from "./outbox.ts";
import { postJson } from "./post.ts";
import { remedyFor, systemCodeOf } from "./remedy.ts";
import type { RemoteServer } from "./remote-server.ts";

/** Changes within this time of the first go into one report. */
const COALESCE_MS = 20;
const ANSWER_DEADLINE_MS = 10_000;
/**
 * A report of everything may be megabytes, and a later one would be no smaller. The server refuses a body
 * that comes more slowly.
 */
const BYTES_PER_MS_MIN = 16;
const RETRY_MS_MIN = 200;
/**
 * Well below the time after which a node counts as lost, so that a server that was restarted sees its nodes
 * soon.
 */
const RETRY_MS_MAX = 3_000;
/**
 * Between two lists of images: a report costs the node, the server and the database something, and nothing
 * waits for it.
 */
const IMAGES_PERIOD_MS = 1_000;
/**
 * Images are listed at most for this part of the time: tenants that fetch one after another may have
 * thousands.
 */
const LISTING_SHARE = 1 / 20;
/** The same failure is a warning again after this time: a terminal that is looked at shows what is wrong. */
const REPEAT_MS = 30_000;
/** Until one of the two programs is upgraded, no call succeeds. */
const RETRY_OF_VERSION_MS = 15_000;

export interface ReporterOptions {
  readonly serverUrl: string;
  /** The Unix socket on which the server of this host listens for nodes; null: it is called at its url. */
  readonly serverSocket: string | null;
  /** The servers of a node on another host; absent: it is on the server's. */
  readonly remote?: RemoteServer | null;
  readonly joinToken: string | null;
  readonly nodeDirectory: string;
  /** Where servers reach this agent: `unix:/path`, `https://host:port`, or `parked:<node id>`. */
  readonly address: string;
  readonly facts: NodeFacts;
  readonly outbox: Outbox;
  readonly runs: RunJournal;
  readonly observeResources: () => Promise<NodeResources>;
  readonly listImages: () => Promise<readonly NodeImage[]>;
  readonly observe: (machineId: string) => ObservedMachine;
  readonly observeAll: () => readonly ObservedMachine[];
  /** Whether VMs of this node can be fenced; absent: they cannot. */
  readonly canFence?: boolean;
  /**
   * A server has acknowledged a heartbeat that was sent at this instant of `Clock.boottime`; absent: no VM is
   * fenced. Never rejects.
   */
  readonly acknowledged?: (sentAt: number, absent: readonly AbsentMachine[]) => Promise<void>;
  /** Keeps guests from these places of the fleet (`host:port`); absent: there are no guests. */
  readonly closeToGuests?: (places: readonly string[]) => void;
  /** Machines whose VMM runs another program than the installed one; absent: it does not say. */
  readonly outdatedVmms?: () => Promise<readonly string[]>;
  /** The last error that the agent has logged; absent: it says none. */
  readonly lastError?: () => Heartbeat["lastError"];
  /** What has arrived of machines that are moved here; absent: the node receives none. */
  readonly incoming?: { readonly moves: readonly string[]; discardEnded(moves: readonly string[]): void };
  readonly clock: Clock;
  readonly log: Log;
  /** Default: those of this release. */
  readonly versions?: LinkVersions;
}

/** This node and the server have versions of the link that do not work together. */
class VersionMismatch extends Error {}

/**
 * The text of a refusal, whose body is JSON; anything else was not sent by a server of Flotilla, and is shown
 * as it is.
 */
function sentenceIn(text: string): string {
  try {
    const { error } = JSON.parse(text) as { readonly error?: unknown };
    return typeof error === "string" ? error : text;
  } catch {
    return text;
  }
}

/** The server answered, and refused. */
class Refused extends Error {
  readonly path: string;
  readonly status: number;

  constructor(path: string, status: number, text: string) {
    super(`POST ${path} was refused with ${status}: ${sentenceIn(text).slice(0, 500)}`);
    this.path = path;
    this.status = status;
  }
}

export class Reporter {
  readonly #options: ReporterOptions;
  readonly #credentialPath: string;
  /** This incarnation of the agent; the numbers of its events count within it. */
  readonly bootId = `agent-${randomBytes(16).toString("hex")}`;
  #credential: string | null = null;
  readonly #images = new ImageReports();
  #isRegistered = false;
  #isComplete = true;
  #failures = 0;
  #lastFailure = "";
  #warnedAt = 0;

  constructor(options: ReporterOptions) {
    this.#options = options;
    this.#credentialPath = join(options.nodeDirectory, "credential");
  }

  /** Reports until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, outbox } = this.#options;
    this.#credential = await readFile(this.#credentialPath, "utf8").catch(() => null);
    while (!signal.aborted) {
      const added = outbox.watch();
      try {
        if (!this.#isRegistered) await this.#register(signal);
        const hasMore = await this.#report(signal);
        this.#onSuccess();
        if (!hasMore) await clock.sleep(HEARTBEAT_PERIOD_MS, AbortSignal.any([signal, added]));
        await clock.sleep(COALESCE_MS, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.#onFailure(error);
        await clock.sleep(retryMs(error, this.#failures), signal);
      }
    }
  }

  #onSuccess(): void {
    if (this.#failures > 0) this.#options.log.info({ failures: this.#failures }, "the server answers again");
    this.#failures = 0;
    this.#lastFailure = "";
  }

  #onFailure(error: unknown): void {
    const { joinToken } = this.#options;
    this.#isComplete = true;
    this.#failures += 1;
    this.#logFailure(error);
    if (error instanceof VersionMismatch) this.#isRegistered = false;
    if (!(error instanceof Refused) || ![401, 403, 404].includes(error.status)) return;
    this.#isRegistered = false;
    // On another host the certificate may have expired; the credential is tried with a registration first.
    if (this.#isRemote && !error.path.endsWith("/register")) return;
    if (error.status !== 404 && this.#credential !== null && joinToken !== null) this.#credential = null;
  }

  /** Not every attempt is a warning: another failure than the last, and the same after some time. */
  #logFailure(error: unknown): void {
    const { log, clock } = this.#options;
    const hasJoined = this.#credential !== null;
    const reason = messageOf(error);
    const isWarning = reason !== this.#lastFailure || clock.monotonic() - this.#warnedAt >= REPEAT_MS;
    this.#lastFailure = reason;
    if (isWarning) this.#warnedAt = clock.monotonic();
    const status = error instanceof Refused ? error.status : null;
    const remedy = remedyFor({ code: systemCodeOf(error), status, hasJoined });
    const fields = { reason, ...(remedy !== null && { remedy }), failures: this.#failures };
    const what = hasJoined ? "a report to the server failed" : "this node has not joined yet";
    log[isWarning ? "warn" : "debug"](fields, `${what}; trying again`);
  }

  async #register(signal: AbortSignal): Promise<void> {
    const { joinToken, facts, address, log, observeResources } = this.#options;
    const token = this.#credential ?? joinToken;
    if (token === null)
      throw new Error("there is no join token: set FLOTILLA_JOIN_TOKEN to one that `flotilla token create` made");
    const { totalCpus, totalMemoryMb, totalDiskGb } = await observeResources();
    const { nodeId, driver, accelerator, acceleratorReason, arch, runtime, memoryFormat } = facts;
    const body = {
      id: nodeId,
      address,
      totalCpus,
      totalMemoryMb,
      totalDiskGb,
      labels: { driver, accelerator, acceleratorReason, arch, ...(memoryFormat !== null && { memoryFormat }) },
      runtime,
      link: this.#versions,
      ...this.#options.remote?.membership.proofFor(token),
    };
    const answer = readRegistrationAnswer(await this.#post("/v1/nodes/register", token, body, signal));
    this.#checkVersions(answer.link);
    // Before the credential: without that the registration is repeated.
    if (answer.fleet !== null) await this.#options.remote?.membership.accept(answer.fleet, this.#joinedWith(token));
    if (answer.credential !== null) await this.#keepCredential(answer.credential);
    if (this.#credential === null) throw new Error("the server registered the node without giving it a credential");
    this.#isRegistered = true;
    this.#isComplete = true;
    log.info({ node: nodeId, server: this.#options.serverUrl }, "this node has joined");
  }

  get #isRemote(): boolean {
    return (this.#options.remote ?? null) !== null;
  }

  /** The join token with which the node was registered; null: with its credential. */
  #joinedWith(token: string): string | null {
    return token === this.#options.joinToken ? token : null;
  }

  async #imageReport(isComplete: boolean): Promise<ImageReport | null> {
    const { outbox, listImages, clock } = this.#options;
    if (!outbox.takeImages({ isComplete })) return null;
    const beganAt = clock.monotonic();
    const report = this.#images.next(await listImages(), { isComplete });
    const listingMs = clock.monotonic() - beganAt;
    outbox.keepImagesUntil(beganAt + Math.max(IMAGES_PERIOD_MS, listingMs / LISTING_SHARE));
    return report;
  }

  get #versions(): LinkVersions {
    return this.#options.versions ?? OWN_LINK_VERSIONS;
  }

  /** The server may have been replaced by one of another release since the last call. */
  #checkVersions(versions: LinkVersions): void {
    const refusal = versionRefusal({ name: "this node", versions: this.#versions }, { name: "the server", versions });
    if (refusal !== null) throw new VersionMismatch(refusal);
  }

  async #keepCredential(credential: string): Promise<void> {
    await writeFile(`${this.#credentialPath}.new`, credential, { mode: 0o600, flush: true });
    await rename(`${this.#credentialPath}.new`, this.#credentialPath);
    this.#credential = credential;
  }

  /** Whether there is more that the server would accept now. */
  async #report(signal: AbortSignal): Promise<boolean> {
    const { facts, outbox, runs: journal, observe, observeAll, observeResources, clock } = this.#options;
    const resources = await observeResources();
    const isComplete = this.#isComplete;
    const changed = outbox.takeChanged();
    const events = outbox.oldest(EVENTS_PER_REPORT_MAX);
    const machines = isComplete ? observeAll() : changed.map(observe);
    const runs = isComplete ? journal.all(RUNS_PER_COMPLETE_REPORT_MAX) : journal.changes(RUNS_PER_REPORT_MAX);
    const images = await this.#imageReport(isComplete);
    const [bootId, link] = [this.bootId, this.#versions];
    const outdatedVmms = (await this.#options.outdatedVmms?.()) ?? null;
    const sentAt = clock.now();
    const sentAtBoottime = clock.boottime();
    const lastError = this.#options.lastError?.() ?? null;
    const heartbeat: Heartbeat = {
      ...{ bootId, link, isComplete, resources, machines, events, runs, images, sentAt },
      ...{ release: RELEASE, lastError, canFence: this.#options.canFence ?? false, outdatedVmms },
      incomingMoves: [...(this.#options.incoming?.moves ?? [])],
    };
    const path = `/v1/nodes/${facts.nodeId}/heartbeat`;
    const answer = readHeartbeatAnswer(await this.#post(path, this.#credential ?? "", heartbeat, signal));
    this.#checkVersions(answer.link);
    await this.#options.acknowledged?.(sentAtBoottime, answer.absentMachines);
    this.#options.closeToGuests?.(answer.closedToGuests);
    this.#options.incoming?.discardEnded(answer.endedMoves);
    if (answer.fleet !== null) await this.#options.remote?.membership.accept(answer.fleet, null);
    // After a long absence there may be more runs than one report holds.
    this.#isComplete = isComplete && !runs.isComplete;
    if (images !== null) this.#images.accepted();
    outbox.accepted(events.at(-1)?.sequence ?? 0);
    // A server that acknowledges none is not asked again at once.
    const { acknowledgedRuns } = answer;
    if (acknowledgedRuns !== null) journal.acknowledge(Math.min(acknowledgedRuns, runs.sequence));
    return !outbox.isEmpty || (acknowledgedRuns !== null && !journal.isEmpty);
  }

  async #post(path: string, token: string, body: unknown, signal: AbortSignal): Promise<unknown> {
    const text = JSON.stringify(body);
    const arrivalMs = Math.ceil(Buffer.byteLength(text) / BYTES_PER_MS_MIN);
    const deadline = deadlineSignal(this.#options.clock, Math.max(ANSWER_DEADLINE_MS, arrivalMs), signal);
    try {
      const post = { path, token, body: text, signal: deadline.signal };
      const { remote } = this.#options;
      const answer = await (remote?.post(post) ?? postJson(this.#options, post));
      if (answer.code === "link_version") throw new VersionMismatch(sentenceIn(answer.text));
      if (answer.status < 200 || answer.status > 299) throw new Refused(path, answer.status, answer.text);
      return answer.text === "" ? null : JSON.parse(answer.text);
    } finally {
      deadline.dispose();
    }
  }
}

function retryMs(error: unknown, failures: number): number {
  if (error instanceof VersionMismatch) return RETRY_OF_VERSION_MS;
  return Math.min(RETRY_MS_MIN * 2 ** (failures - 1), RETRY_MS_MAX);
}
