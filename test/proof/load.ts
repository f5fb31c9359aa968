/**
 * Light load on a cluster, through both servers.
 *
 * - Each lasting machine has a writer. It appends numbered lines to a file and syncs it, and stops and starts
 *   the machine now and then.
 * - One worker creates, starts, uses and deletes a machine again and again.
 * - One worker moves a lasting machine, or drains a node and opens it again; it waits for the end of each
 *   operation.
 *
 * Always: a number is sent once, so a line that is there twice was written by a command that ran twice.
 */
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { pause, until } from "../support/until.ts";
import { type Calls, shortly } from "./calls.ts";
import { NODES } from "./cluster.ts";

const LINES = "/workspace/lines";
/** A writer stops and starts its machine after so many lines. */
const RESTART_EVERY = 12;
const WRITE_EVERY_MS = 300;
const OPERATION_DEADLINE_MS = 90_000;
const DRAIN_DEADLINE_SECONDS = 30;
const RESOURCES = { cpus: 1, memoryMb: 128, diskGb: 1 };

interface Lasting {
  readonly id: string;
  readonly name: string;
  /** The last number that was sent. */
  sent: number;
  readonly acknowledged: number[];
}

/** From the begin of the load to its end. Each worker keeps its own, so one that is late ends. */
interface Shift {
  isOver: boolean;
  isWriting: boolean;
}

export interface Keys {
  /** Header of calls for machines, with the key of the tenant that owns them. */
  readonly owner: Readonly<Record<string, string>>;
}

export class Load {
  readonly lasting: Lasting[] = [];
  /** Machines whose deletion was acknowledged. */
  readonly deleted = new Set<string>();
  readonly operations = { moves: 0, drains: 0, succeeded: 0, failed: 0 };
  cycles = 0;
  readonly #calls: Calls;
  readonly #keys: Keys;
  #shift: Shift = { isOver: true, isWriting: false };
  #hasOperation = false;
  #written = 0;
  #created = 0;
  #workers: Promise<void>[] = [];
  #writers: Promise<void>[] = [];

  constructor(calls: Calls, keys: Keys) {
    this.#calls = calls;
    this.#keys = keys;
  }

  /** Creates and starts the machines that stay. */
  async prepare(count: number): Promise<void> {
    const make = async (index: number): Promise<void> => {
      const name = `lasting-${index}`;
      const id = await this.#create(name);
      await this.#acknowledged("POST", `/v1/machines/${id}/start`, [200]);
      this.lasting.push({ id, name, sent: 0, acknowledged: [] });
    };
    await Promise.all(Array.from({ length: count }, (_, index) => make(index)));
  }

  /** Resolves when every worker is busy: lines were written, and an operation runs. */
  async begin(): Promise<void> {
    const shift = { isOver: false, isWriting: true };
    this.#shift = shift;
    this.#hasOperation = false;
    this.#written = 0;
    this.#writers = this.lasting.map((machine) => this.#write(machine, shift));
    this.#workers = [this.#comeAndGo(shift), this.#operate(shift)];
    for (const each of [...this.#writers, ...this.#workers]) each.catch(() => undefined);
    const failed = Promise.all([...this.#writers, ...this.#workers]).then(() => false as const);
    failed.catch(() => undefined);
    const isBusy = until(() => this.#hasOperation && this.#written > this.lasting.length, {
      what: "the load to begin",
      deadlineMs: 60_000,
      everyMs: 50,
    });
    await Promise.race([isBusy, failed]);
  }

  /** Every worker ends what it has begun; then each lasting machine takes a write through each server. */
  async settle(): Promise<void> {
    this.#shift.isOver = true;
    await Promise.all(this.#workers);
    this.#shift.isWriting = false;
    await Promise.all(this.#writers);
    await Promise.all(
      this.lasting.map(async (machine) => {
        for (const server of [0, 1])
          await until(() => this.#append(machine, server), {
            what: `a write to ${machine.name} through server ${server}`,
            deadlineMs: 60_000,
            everyMs: 250,
          });
      }),
    );
  }

  /** Removes what a failed test has left: nodes that are drained, and machines that do not stay. */
  async clear(): Promise<void> {
    this.#shift.isOver = true;
    this.#shift.isWriting = false;
    for (const node of NODES) await this.#open(node);
    const { json } = await this.#calls.acknowledged(
      { method: "GET", path: "/v1/machines?limit=1000", headers: this.#keys.owner },
      [200],
    );
    const lasting = new Set(this.lasting.map(({ id }) => id));
    for (const { id } of json as { id: string }[])
      if (!lasting.has(id)) await this.#acknowledged("DELETE", `/v1/machines/${id}`, [204, 404]);
  }

  /** Every line that was acknowledged is there, once and in order. */
  async verify(): Promise<void> {
    for (const { id, name, acknowledged } of this.lasting) {
      const answer = await this.#acknowledged("POST", `/v1/machines/${id}/exec`, [200], { command: `cat ${LINES}` });
      const { exitCode, stdout } = answer.json as { exitCode: number; stdout: string };
      assert.equal(exitCode, 0, `${name}: ${answer.text}`);
      const lines = stdout.trim().split("\n").map(Number);
      for (const [index, line] of lines.entries())
        assert.ok(index === 0 || line > (lines[index - 1] ?? 0), `${name} has line ${line} after ${lines[index - 1]}`);
      const present = new Set(lines);
      const lost = acknowledged.filter((number) => !present.has(number));
      assert.deepEqual(lost, [], `acknowledged lines that ${name} lost`);
    }
  }

  async #write(machine: Lasting, shift: Shift): Promise<void> {
    while (shift.isWriting) {
      const isWritten = await this.#append(machine);
      if (!isWritten) await shortly();
      await pause(randomInt(WRITE_EVERY_MS));
      if (!isWritten || machine.sent % RESTART_EVERY !== 0) continue;
      await this.#call("POST", `/v1/machines/${machine.id}/stop`);
      await this.#call("POST", `/v1/machines/${machine.id}/start`);
    }
  }

  /** Whether it was acknowledged. */
  async #append(machine: Lasting, server?: number): Promise<boolean> {
    machine.sent += 1;
    const number = machine.sent;
    const command = `echo ${number} >> ${LINES} && sync && echo written`;
    const body = { command, timeoutSeconds: 20 };
    const answer = await this.#call("POST", `/v1/machines/${machine.id}/exec`, body, server);
    const result = answer?.json as { exitCode?: number; stdout?: string } | undefined;
    if (answer?.status !== 200 || result?.exitCode !== 0 || result.stdout !== "written\n") return false;
    machine.acknowledged.push(number);
    this.#written += 1;
    return true;
  }

  async #comeAndGo(shift: Shift): Promise<void> {
    while (!shift.isOver) {
      this.#created += 1;
      const id = await this.#create(`passing-${this.#created}`);
      await this.#acknowledged("POST", `/v1/machines/${id}/start`, [200]);
      const exec = (command: string) => this.#acknowledged("POST", `/v1/machines/${id}/exec`, [200], { command });
      await exec(`echo ${id} > /workspace/id && sync`);
      await this.#acknowledged("POST", `/v1/machines/${id}/stop`, [200]);
      const { stdout } = (await exec("cat /workspace/id")).json as { stdout: string };
      assert.equal(stdout, `${id}\n`, `machine ${id} lost what was acknowledged`);
      await this.#acknowledged("DELETE", `/v1/machines/${id}`, [204, 404]);
      this.deleted.add(id);
      this.cycles += 1;
    }
  }

  /** Operations in turn, until the load is over. */
  async #operate(shift: Shift): Promise<void> {
    while (!shift.isOver) {
      const node = NODES[randomInt(NODES.length)] ?? NODES[0];
      if ((this.operations.moves + this.operations.drains) % 2 === 0) await this.#move(node);
      else await this.#drain(node);
    }
  }

  async #move(node: string): Promise<void> {
    const machine = this.lasting[randomInt(this.lasting.length)];
    const asked = await this.#admin("POST", `/v1/machines/${machine?.id}/move`, { nodeId: node });
    if (asked?.status !== 202) return await shortly();
    this.operations.moves += 1;
    await this.#ended((asked.json as { id: string }).id);
  }

  async #drain(node: string): Promise<void> {
    const asked = await this.#admin("POST", `/v1/nodes/${node}/drain`, { deadlineSeconds: DRAIN_DEADLINE_SECONDS });
    if (asked?.status === 200) {
      this.operations.drains += 1;
      await this.#ended((asked.json as { operationId: string }).operationId);
    } else await shortly();
    // Also after a drain whose answer was lost.
    await this.#open(node);
  }

  async #open(node: string): Promise<void> {
    const isOpen = async (): Promise<boolean> => {
      const canceled = await this.#admin("DELETE", `/v1/nodes/${node}/drain`);
      return canceled !== null && [200, 409].includes(canceled.status);
    };
    await until(isOpen, { what: `node ${node} to be opened`, deadlineMs: OPERATION_DEADLINE_MS, everyMs: 250 });
  }

  async #ended(operation: string): Promise<void> {
    this.#hasOperation = true;
    const status = await until(
      async () => {
        const answer = await this.#admin("GET", `/v1/operations/${operation}`);
        const { status: now } = (answer?.status === 200 ? answer.json : { status: "running" }) as { status: string };
        return now !== "running" && now;
      },
      { what: `operation ${operation} to end`, deadlineMs: OPERATION_DEADLINE_MS, everyMs: 250 },
    );
    if (status === "succeeded") this.operations.succeeded += 1;
    else this.operations.failed += 1;
  }

  async #create(name: string): Promise<string> {
    const body = { name, source: { type: "image", reference: "local/busybox" }, resources: RESOURCES };
    const headers = { ...this.#keys.owner, "idempotency-key": name };
    const { json } = await this.#calls.acknowledged({ method: "POST", path: "/v1/machines", body, headers }, [201]);
    return (json as { id: string }).id;
  }

  #acknowledged(method: "POST" | "DELETE", path: string, statuses: readonly number[], body?: unknown) {
    return this.#calls.acknowledged({ method, path, body, headers: this.#keys.owner }, statuses);
  }

  #call(method: "POST" | "DELETE", path: string, body?: unknown, server?: number) {
    return this.#calls.send({ method, path, body, headers: this.#keys.owner }, server);
  }

  #admin(method: "GET" | "POST" | "DELETE", path: string, body?: unknown) {
    return this.#calls.send({ method, path, body });
  }
}
