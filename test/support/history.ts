/**
 * What users requested of machines and the answers, in order; and a checker that says which answers are
 * impossible.
 *
 * The checker is a separate model: it knows the promises of docs/states.md and of the API, and nothing of how
 * the server keeps them. Pure.
 *
 * Time is a count: every beginning and every end of a call has its own tick, so of two calls one is before
 * the other, or they overlap. A promise holds only relative to what has certainly happened before (its call
 * had ended when this one began), and every effect of an overlapping call is allowed. So a history of
 * consecutive calls is checked exactly, and one of concurrent calls as exactly as possible.
 */
import { RESTARTS_MAX } from "@flotilla/contract/limits";
import type { MachineInfo } from "@flotilla/contract/machines";

export type Verb =
  | "create"
  | "get"
  | "list"
  | "start"
  | "startDetached"
  | "stop"
  | "delete"
  | "exec"
  | "powerOff"
  | "crash"
  | "put"
  | "read"
  | "openSession"
  | "closeSession"
  | "sessionExec"
  | "restartNode";

/** One call, from its beginning to its end. */
export interface Operation {
  readonly verb: Verb;
  /** The machine's id; of a create the one in the answer; "" where there is none. */
  readonly machine: string;
  readonly begunAt: number;
  readonly endedAt: number;
  /** 0: no answer came. */
  readonly status: number;
  readonly code: string;
  readonly text: string;
  /** Subject: the requested name of a create, the path of files, the id of sessions. */
  readonly subject: string;
  /** The written content: a file's, or a session's variable; for an exec the text it should print. */
  readonly content: string;
  /** The earlier answer to the same request under the same idempotency key. */
  readonly firstAnswer?: string;
}

export interface Ceilings {
  readonly maxMachines: number;
  readonly maxConcurrentMachines: number;
}

export interface World extends Ceilings {
  /** Machines that cannot boot. */
  readonly failing: ReadonlySet<string>;
  readonly ephemeral: ReadonlySet<string>;
  /** Files are in the node agent's memory, as with the fake driver. */
  readonly forgetsFiles: boolean;
  /** A crash may hit a VM before its machine ran, and then the start has failed. */
  readonly crashesHitStarts: boolean;
}

/** Verbs that start a stopped machine. */
const STARTING: readonly Verb[] = ["start", "startDetached", "exec", "powerOff", "crash", "put", "read", "sessionExec"];
/** Verbs that may end a running command, file transfer or start. */
const DISRUPTING: readonly Verb[] = ["stop", "delete", "powerOff", "crash", "restartNode"];

const isOk = ({ status }: Operation): boolean => status >= 200 && status < 300;
const isRefusedFile = ({ status, text }: Operation): boolean => status === 404 && text.startsWith("file not found");
/** It reached the guest, so the machine ran; or its start was accepted. */
const hasRun = (operation: Operation): boolean =>
  STARTING.includes(operation.verb) && (isOk(operation) || isRefusedFile(operation));

/** All faults of a history, as text. */
export function faultsOf(history: readonly Operation[], world: World): readonly string[] {
  return new Judge(history, world).faults();
}

/** Text for people: one line for each call, without reads that show nothing new. */
export function describe(history: readonly Operation[]): string {
  const seen = new Map<string, string>();
  const isNews = (operation: Operation): boolean => {
    const { verb, machine } = operation;
    if (verb !== "get" && verb !== "list") return true;
    const shown = `${operation.status} ${operation.text.replace(/"(updatedAt|lastActivityAt)":[^,]*/g, "")}`;
    const isSame = seen.get(verb + machine) === shown;
    seen.set(verb + machine, shown);
    return !isSame;
  };
  const ordered = history.toSorted((one, other) => one.begunAt - other.begunAt);
  return ordered.filter(isNews).map(lineOf).join("\n");
}

function lineOf({ begunAt, endedAt, verb, machine, subject, content, status, code, text }: Operation): string {
  const what = [verb, machine.slice(0, 10), subject, content.slice(0, 20)].filter((part) => part !== "").join(" ");
  const states = [...text.matchAll(/"state":"([a-z]+)"/g)].map(([, state]) => state).join(" ");
  const answer = status >= 400 ? `${code} ${text}` : states || text.replaceAll("\n", "⏎");
  return `${begunAt}–${endedAt} ${what} → ${status} ${answer.slice(0, 200)}`;
}

class Judge {
  readonly #history: readonly Operation[];
  readonly #world: World;
  readonly #faults: string[] = [];

  constructor(history: readonly Operation[], world: World) {
    this.#history = history;
    this.#world = world;
  }

  faults(): readonly string[] {
    for (const operation of this.#history) {
      if (operation.status === 0) this.#fault(operation, `no answer: ${operation.text}`);
      else if (operation.status === 500) this.#fault(operation, "a fault of the server");
      else if (operation.firstAnswer !== undefined) this.#judgeReplay(operation);
      else this.#judge(operation);
    }
    return this.#faults;
  }

  #judge(operation: Operation): void {
    switch (operation.verb) {
      case "create":
        return this.#judgeCreate(operation);
      case "list":
        return this.#judgeList(operation);
      case "get":
      case "stop":
      case "delete":
        if (!this.#isGoneAsItShould(operation)) return;
        return this.#judgePlain(operation);
      case "start":
      case "startDetached":
      case "exec":
      case "powerOff":
      case "crash":
      case "put":
      case "read":
      case "sessionExec":
        return this.#judgeUse(operation);
      case "openSession":
      case "closeSession":
        return this.#judgeSession(operation);
      case "restartNode":
        return;
    }
  }

  #fault(operation: Operation, what: string): void {
    this.#faults.push(`${what}: ${lineOf(operation)}`);
  }

  #of(machine: string, verbs: readonly Verb[]): readonly Operation[] {
    return this.#history.filter((other) => other.machine === machine && verbs.includes(other.verb));
  }

  // Existence.

  #mayBeGone(operation: Operation, machine = operation.machine): boolean {
    const isDeleted = this.#of(machine, ["delete"]).some(
      (other) => other !== operation && mayPrecede(other, operation),
    );
    const isUsedUp = this.#world.ephemeral.has(machine) && this.#mayHaveStopped(machine, operation);
    return isDeleted || isUsedUp;
  }

  #mayHaveStopped(machine: string, operation: Operation): boolean {
    return this.#of(machine, ["stop", "powerOff"]).some((other) => mayPrecede(other, operation));
  }

  #isSurelyGone(operation: Operation, machine = operation.machine): boolean {
    return this.#of(machine, ["delete"]).some((other) => other.status === 204 && isBefore(other, operation));
  }

  /** Whether there is more to check. */
  #isGoneAsItShould(operation: Operation): boolean {
    if (isRefusedFile(operation) || operation.text.includes("has no session")) return true;
    if (operation.status === 404) {
      if (!this.#mayBeGone(operation)) this.#fault(operation, "a machine was not found without a delete");
      return false;
    }
    if (this.#isSurelyGone(operation)) this.#fault(operation, "a deleted machine was found");
    return true;
  }

  // States.

  #judgePlain(operation: Operation): void {
    const { verb, status, machine } = operation;
    if (verb === "get" && status === 200) return this.#judgeInfo(operation, JSON.parse(operation.text) as MachineInfo);
    if (verb === "delete" && status === 204) {
      const twice = this.#of(machine, ["delete"]).some(
        (other) => other.status === 204 && other.begunAt < operation.begunAt,
      );
      if (twice) this.#fault(operation, "deleted twice");
      return;
    }
    if (verb === "stop" && status === 200) {
      const info = JSON.parse(operation.text) as MachineInfo;
      const isOvertaken = this.#of(machine, STARTING).some((other) => overlap(other, operation));
      if (info.state !== "stopped" && !isOvertaken) this.#fault(operation, `a stop was answered with ${info.state}`);
      return this.#judgeInfo(operation, info);
    }
    if (verb === "stop" && status === 503 && this.#isDisrupted(operation, ["restartNode"])) return;
    this.#fault(operation, "an impossible answer");
  }

  #judgeInfo(operation: Operation, info: MachineInfo): void {
    const { id, state, ready, readyAt, error } = info;
    if (ready && state !== "started") this.#fault(operation, `ready and ${state}`);
    if (ready !== (readyAt !== null)) this.#fault(operation, `ready is ${ready} with readyAt ${readyAt}`);
    if ((state === "error") !== (error !== null)) this.#fault(operation, `${state} with the error ${error}`);
    const isNodeAway = state === "error" && /does not report/.test(error ?? "");
    if (isNodeAway) {
      if (!this.#isDisrupted(operation, ["restartNode"]))
        this.#fault(operation, "the node is unreachable, and was not ended");
    } else if (!this.#mayBe(state, operation, id)) this.#fault(operation, `${state} is impossible`);
  }

  #mayBe(state: string, operation: Operation, machine = operation.machine): boolean {
    const starts = this.#of(machine, STARTING);
    const accepted = starts.filter((start) => hasRun(start) && isBefore(start, operation));
    const stopped = this.#of(machine, ["stop"]).filter((stop) => stop.status === 200 && isBefore(stop, operation));
    if (state === "stopped") {
      const stops = this.#of(machine, ["stop", "powerOff"]).filter((stop) => mayPrecede(stop, operation));
      return accepted.every((start) => stops.some((stop) => this.#endOf(stop) > start.begunAt));
    }
    if (state === "error") {
      const causes = this.#of(machine, STARTING).filter(
        (cause) => this.#mayFail(cause, operation) && mayPrecede(cause, operation),
      );
      const isNews = (cause: Operation, than: Operation): boolean => this.#endOf(cause) > than.begunAt;
      const isFailing = this.#world.failing.has(machine);
      return causes.some(
        (cause) =>
          stopped.every((stop) => isNews(cause, stop)) &&
          (isFailing || accepted.every((start) => start === cause || isNews(cause, start))),
      );
    }
    return starts.some(
      (start) => mayPrecede(start, operation) && stopped.every((stop) => start.endedAt > stop.begunAt),
    );
  }

  #mayFail(cause: Operation, until: Operation): boolean {
    if (this.#world.failing.has(cause.machine)) return true;
    return this.#isUnasked(cause, until) && (this.#world.crashesHitStarts || this.#hasCrashedOften(cause, until));
  }

  /** After this many unexpected ends a machine is not restarted. */
  #hasCrashedOften({ machine }: Operation, until: Operation): boolean {
    const ends = this.#of(machine, ["crash", "powerOff"]).filter((end) => this.#isUnasked(end, until));
    return ends.length > RESTARTS_MAX;
  }

  /** Whether its machine ended unexpectedly: a guest's own end that no agent observed counts as a crash. */
  #isUnasked(cause: Operation, until: Operation): boolean {
    if (!mayPrecede(cause, until)) return false;
    if (cause.verb === "crash") return true;
    const restarts = this.#history.filter(({ verb }) => verb === "restartNode");
    return (
      cause.verb === "powerOff" &&
      restarts.some((restart) => mayPrecede(restart, until) && this.#endOf(cause) > restart.begunAt)
    );
  }

  /** Until when it may still change anything: what a guest does by itself is reported later. */
  #endOf(operation: Operation): number {
    const isFailing = this.#world.failing.has(operation.machine) && STARTING.includes(operation.verb);
    if (operation.verb !== "powerOff" && operation.verb !== "crash" && !isFailing) return operation.endedAt;
    // The boot that a crash ended answers nothing any more: a later successful command was in the next boot.
    const used: readonly Verb[] = operation.verb === "crash" ? ["exec", "put", "read"] : [];
    const isSettledBy = (other: Operation): boolean =>
      isBefore(operation, other) &&
      isOk(other) &&
      (other.verb !== "get" || /"state":"(stopped|error)"/.test(other.text));
    const settling = this.#of(operation.machine, ["stop", "get", ...used]).filter(isSettledBy);
    return Math.min(Number.POSITIVE_INFINITY, ...settling.map(({ endedAt }) => endedAt));
  }

  #isDisrupted(operation: Operation, verbs: readonly Verb[] = DISRUPTING): boolean {
    return this.#history.some(
      (other) =>
        other !== operation &&
        verbs.includes(other.verb) &&
        (other.verb === "restartNode" || other.machine === operation.machine) &&
        mayPrecede(other, operation) &&
        this.#endOf(other) > operation.begunAt,
    );
  }

  // Use.

  #judgeUse(operation: Operation): void {
    if (!this.#isGoneAsItShould(operation)) return;
    const { verb, status, code, machine } = operation;
    const isItsOwnEnd = verb === "powerOff" || verb === "crash";
    if (isOk(operation)) {
      if (this.#world.failing.has(machine) && status !== 202) this.#fault(operation, "a machine ran that cannot boot");
      return this.#judgeResult(operation);
    }
    if (isRefusedFile(operation)) return this.#judgeContent(operation, null);
    if (status === 404 && verb === "sessionExec") return this.#judgeNoSession(operation);
    const isDisrupted = isItsOwnEnd || this.#isDisrupted(operation);
    if (code === "quota_exceeded") {
      if (this.#activeAtMost(operation) < this.#world.maxConcurrentMachines)
        this.#fault(operation, "refused though there is room under the ceiling");
    } else if (code === "start_failed") {
      if (!this.#world.failing.has(machine) && !isDisrupted) this.#fault(operation, "the start failed for no reason");
    } else if (code === "conflict" && verb !== "start" && verb !== "startDetached" && this.#mayBe("error", operation)) {
      // Only a start leaves the state error.
    } else if (!isDisrupted || ![409, 502, 503].includes(status)) this.#fault(operation, "refused for no reason");
  }

  #judgeResult(operation: Operation): void {
    const { verb, text, content } = operation;
    if (verb === "read") return this.#judgeContent(operation, text);
    if (verb === "start" || verb === "startDetached") {
      const info = JSON.parse(text) as MachineInfo;
      const expected = verb === "start" ? ["started"] : ["started", "creating"];
      if (!expected.includes(info.state)) this.#fault(operation, `a start was answered with ${info.state}`);
      return this.#judgeInfo(operation, info);
    }
    if (verb !== "exec" && verb !== "sessionExec") return;
    const { exitCode, stdout } = JSON.parse(text) as { exitCode: number; stdout: string };
    if (exitCode !== 0) {
      if (!this.#isDisrupted(operation)) this.#fault(operation, `exit code ${exitCode}`);
    } else if (verb === "sessionExec") this.#judgeContent(operation, stdout.trim());
    else if (stdout !== `${content}\n`) this.#fault(operation, `printed ${JSON.stringify(stdout)}`);
  }

  /** The most machines that may count as running, without this one. */
  #activeAtMost(operation: Operation): number {
    const machines = new Set(this.#history.map(({ machine }) => machine));
    machines.delete(operation.machine);
    return [...machines].filter(
      (machine) => !this.#isSurelyGone(operation, machine) && this.#mayBe("started", operation, machine),
    ).length;
  }

  // Written content can be read.

  /** `seen` null: there is nothing. */
  #judgeContent(operation: Operation, seen: string | null): void {
    const { machine, subject } = operation;
    const isFile = operation.verb === "read";
    const writes = this.#of(machine, [isFile ? "put" : "sessionExec"]).filter(
      (write) => write !== operation && write.subject === subject && mayPrecede(write, operation),
    );
    const sure = writes.filter((write) => isOk(write) && isBefore(write, operation) && !this.#isDisrupted(write));
    const isOverwritten = (write: Operation): boolean => sure.some((later) => isBefore(write, later));
    const since = Math.max(-1, ...sure.map(({ begunAt }) => begunAt));
    const mayBeLost = isFile ? this.#mayLoseFile(operation, since) : this.#mayLoseSession(operation, since);
    if (seen === null || seen === "") {
      if (sure.length > 0 && !mayBeLost) this.#fault(operation, `what was written at ${since} is gone`);
    } else if (!writes.some((write) => write.content === seen && !isOverwritten(write)))
      this.#fault(operation, `read ${JSON.stringify(seen.slice(0, 40))}, which is not what was written last`);
  }

  #mayLoseFile(operation: Operation, since: number): boolean {
    const isInMemory = operation.subject.startsWith("/tmp/");
    const verbs: readonly Verb[] = [
      ...(isInMemory ? (["stop", "powerOff", "crash"] as const) : []),
      ...(this.#world.forgetsFiles ? (["restartNode"] as const) : []),
    ];
    return this.#history.some(
      (other) =>
        verbs.includes(other.verb) &&
        (other.verb === "restartNode" || other.machine === operation.machine) &&
        mayPrecede(other, operation) &&
        this.#endOf(other) > since,
    );
  }

  #mayLoseSession(operation: Operation, since: number): boolean {
    return this.#of(operation.machine, ["closeSession"]).some(
      (other) => other.subject === operation.subject && mayPrecede(other, operation) && other.endedAt > since,
    );
  }

  // Sessions.

  #judgeSession(operation: Operation): void {
    if (!this.#isGoneAsItShould(operation)) return;
    const { verb, status } = operation;
    const expected = verb === "openSession" ? [200, 409] : [204, 404];
    if (!expected.includes(status)) this.#fault(operation, "an impossible answer");
    if (verb === "openSession" && status === 409 && !this.#mayHaveSession(operation))
      this.#fault(operation, "a conflict with a session that was never opened");
    if (verb === "closeSession" && status === 404) this.#judgeNoSession(operation);
  }

  #judgeNoSession(operation: Operation): void {
    const sameOf = (verb: Verb): readonly Operation[] =>
      this.#of(operation.machine, [verb]).filter(({ subject }) => subject === operation.subject);
    const opened = sameOf("openSession").filter((open) => open.status === 200 && isBefore(open, operation));
    const closes = sameOf("closeSession").filter((close) => close !== operation && mayPrecede(close, operation));
    const isThere = opened.some((open) => !closes.some((close) => close.endedAt > open.begunAt));
    if (isThere && !this.#mayBeGone(operation)) this.#fault(operation, "an open session was not found");
  }

  #mayHaveSession(operation: Operation): boolean {
    return this.#of(operation.machine, ["openSession"]).some(
      (open) => open !== operation && open.subject === operation.subject && mayPrecede(open, operation),
    );
  }

  // Creation, lists and replays.

  #creates(): readonly Operation[] {
    return this.#history.filter(
      ({ verb, status, firstAnswer }) => verb === "create" && status === 201 && firstAnswer === undefined,
    );
  }

  #surelyThere(operation: Operation): readonly Operation[] {
    return this.#creates().filter(
      (create) => isBefore(create, operation) && !this.#mayBeGone(operation, create.machine),
    );
  }

  #perhapsThere(operation: Operation): readonly Operation[] {
    return this.#creates().filter(
      (create) =>
        create !== operation && mayPrecede(create, operation) && !this.#isSurelyGone(operation, create.machine),
    );
  }

  #judgeCreate(operation: Operation): void {
    const { status, code, subject } = operation;
    const named = (create: Operation): boolean => subject !== "" && create.subject === subject;
    const sure = this.#surelyThere(operation);
    const { maxMachines } = this.#world;
    if (status === 201) {
      if (sure.some(named)) this.#fault(operation, "a name was given twice");
      if (sure.length >= maxMachines) this.#fault(operation, "more machines than the plan allows");
      const info = JSON.parse(operation.text) as MachineInfo;
      if (info.state !== "stopped" || info.ready) this.#fault(operation, `created as ${info.state}`);
    } else if (code === "name_taken") {
      if (!this.#perhapsThere(operation).some(named)) this.#fault(operation, "the name is not taken");
    } else if (code === "quota_exceeded") {
      if (this.#perhapsThere(operation).length < maxMachines) this.#fault(operation, "there is room for it");
    } else this.#fault(operation, "an impossible answer");
  }

  #judgeList(operation: Operation): void {
    if (operation.status !== 200) return this.#fault(operation, "an impossible answer");
    const list = JSON.parse(operation.text) as MachineInfo[];
    const ids = new Set(list.map(({ id }) => id));
    const names = list.map(({ name }) => name).filter((name) => name !== null);
    if (new Set(names).size < names.length) this.#fault(operation, `a name is listed twice: ${names.join()}`);
    if (list.length > this.#world.maxMachines) this.#fault(operation, `${list.length} machines`);
    const active = list.filter(({ state }) => state === "started" || state === "creating");
    if (active.length > this.#world.maxConcurrentMachines) this.#fault(operation, `${active.length} run at once`);
    for (const create of this.#surelyThere(operation))
      if (!ids.has(create.machine)) this.#fault(operation, `${create.machine} is missing in the list`);
    for (const info of list) {
      if (this.#isSurelyGone(operation, info.id)) this.#fault(operation, `${info.id} was deleted`);
      this.#judgeInfo({ ...operation, machine: info.id }, info);
    }
  }

  #judgeReplay(operation: Operation): void {
    const { firstAnswer, status, text } = operation;
    if (`${status} ${text}` !== firstAnswer) this.#fault(operation, `first answered ${firstAnswer}, then another way`);
  }
}

const isBefore = (one: Operation, other: Operation): boolean => one.endedAt < other.begunAt;
/** It had begun when the other ended. */
const mayPrecede = (one: Operation, other: Operation): boolean => one.begunAt < other.endedAt;
const overlap = (one: Operation, other: Operation): boolean => !isBefore(one, other) && !isBefore(other, one);
