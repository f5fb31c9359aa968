/**
 * Checks again what comes over the link before anything of it reaches a disk, a command line or a guest.
 *
 * The server has checked the same; this is the second half of the pair, because the node agent runs as root. Pure.
 * Always: what is returned holds only the fields that are named here, and every text in it is free of NUL.
 */
import {
  DESIRED_STATES,
  type DesiredMachine,
  type ExecStart,
  FILE_OPERATIONS,
  type FileRequest,
  type MachineSpec,
} from "@flotilla/contract/link";
import { RESTARTS } from "@flotilla/contract/machines";
import {
  ARGUMENT_BYTES_MAX,
  CPUS_MAX,
  DISK_GB_MAX,
  ENV_BYTES_MAX,
  EXEC_TIMEOUT_MAX_SECONDS,
  LOG_TAIL_MAX,
  MEMORY_MB_MAX,
  MEMORY_MB_MIN,
  PORTS_PER_MACHINE_MAX,
} from "@flotilla/contract/limits";

/** A message that does not fit the contract. `message` says where and what was expected. */
export class InvalidMessage extends Error {}

const MACHINE_ID = /^mach-[0-9a-f]{32}$/;
const HOSTNAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$/;
/** What a reference may be made of; nothing that a program could take for an option. */
const REFERENCE = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}$/;
const PATH_CHARACTERS_MAX = 4096;
/** The kernel's own limit of argv and environment together is 2 MiB. */
const ARGV_BYTES_MAX = 1024 * 1024;
const SIDE_MAX = 10_000;

type Fields = Readonly<Record<string, unknown>>;

export function isMachineId(text: string): boolean {
  return MACHINE_ID.test(text);
}

/** Parses the body of PUT /v1/machines/{id}. */
export function parseDesiredMachine(machineId: string, value: unknown): DesiredMachine {
  const fields = object(value, "body");
  const generation = integer(fields["generation"], "generation", 1, Number.MAX_SAFE_INTEGER);
  const state = oneOf(fields["state"], "state", DESIRED_STATES);
  const spec = fields["spec"] ?? null;
  if (spec === null) {
    if (state !== "absent") throw new InvalidMessage(`spec: expected for state ${state}`);
    return { generation, state, spec: null };
  }
  return { generation, state, spec: parseSpec(machineId, object(spec, "spec")) };
}

function parseSpec(machineId: string, fields: Fields): MachineSpec {
  if (fields["machineId"] !== machineId) throw new InvalidMessage("spec.machineId: expected the id of the path");
  const image = object(fields["image"], "spec.image");
  return {
    machineId,
    tenantId: text(fields["tenantId"], "spec.tenantId", 128),
    hostname: matching(fields["hostname"], "spec.hostname", HOSTNAME),
    image: {
      reference: parseReference(image["reference"], "spec.image.reference"),
      arch: parseArch(image["arch"], "spec.image.arch"),
    },
    cpus: integer(fields["cpus"], "spec.cpus", 1, CPUS_MAX),
    memoryMb: integer(fields["memoryMb"], "spec.memoryMb", MEMORY_MB_MIN, MEMORY_MB_MAX),
    diskGb: integer(fields["diskGb"], "spec.diskGb", 1, DISK_GB_MAX),
    network: parseNetwork(object(fields["network"], "spec.network")),
    env: parseEnvironment(fields["env"], "spec.env"),
    workdir: nullable(fields["workdir"], (path) => parsePath(path, "spec.workdir")),
    command: nullable(fields["command"], (command) => parseArgv(command, "spec.command")),
    ports: list(fields["ports"], "spec.ports", PORTS_PER_MACHINE_MAX).map((item, index) => ({
      port: integer(object(item, `spec.ports.${index}`)["port"], `spec.ports.${index}.port`, 1, 65_535),
    })),
    // A server of an earlier version says nothing of it.
    restart: oneOf(fields["restart"] ?? "always", "spec.restart", RESTARTS),
  };
}

function parseNetwork(fields: Fields): MachineSpec["network"] {
  const mode = oneOf(fields["mode"], "spec.network.mode", ["open", "blocked", "allowCidrs"] as const);
  const texts = (name: "cidrs" | "hosts"): readonly string[] =>
    list(fields[name] ?? [], `spec.network.${name}`, 256).map((item) => text(item, `spec.network.${name}`, 253));
  return { mode, cidrs: [...texts("cidrs")], hosts: [...texts("hosts")] };
}

/** Parses the first frame of an exec. */
export function parseExecStart(value: unknown): ExecStart {
  const fields = object(value, "start");
  const argv = parseArgv(fields["argv"], "argv");
  const file = fields["file"] === undefined ? undefined : parseFileRequest(object(fields["file"], "file"));
  if (file === undefined && (argv.length === 0 || argv[0] === "")) throw new InvalidMessage("argv: expected a program");
  return {
    argv,
    cwd: nullable(fields["cwd"], (path) => text(path, "cwd", PATH_CHARACTERS_MAX)),
    env: parseEnvironment(fields["env"], "env"),
    user: nullable(fields["user"], (user) => text(user, "user", 256)),
    timeoutMs: nullable(fields["timeoutMs"], (ms) => integer(ms, "timeoutMs", 1, EXEC_TIMEOUT_MAX_SECONDS * 1000)),
    isBackground: fields["isBackground"] === true,
    hasStdin: fields["hasStdin"] === true,
    terminal: nullable(fields["terminal"], (terminal) => parseTerminalSize(terminal)),
    ...(file === undefined ? {} : { file }),
  };
}

function parseFileRequest(fields: Fields): FileRequest {
  const size = (value: unknown, where: string): number => integer(value, where, 0, Number.MAX_SAFE_INTEGER);
  return {
    operation: oneOf(fields["operation"], "file.operation", FILE_OPERATIONS),
    path: parsePath(fields["path"], "file.path"),
    offset: size(fields["offset"], "file.offset"),
    length: nullable(fields["length"], (length) => size(length, "file.length")),
    isFromEnd: fields["isFromEnd"] === true,
  };
}

/** Parses a terminal's size, of a start or of a resize frame. */
export function parseTerminalSize(value: unknown): { readonly cols: number; readonly rows: number } {
  const fields = object(value, "terminal");
  return {
    cols: integer(fields["cols"], "terminal.cols", 1, SIDE_MAX),
    rows: integer(fields["rows"], "terminal.rows", 1, SIDE_MAX),
  };
}

/** Parses the payload of a signal frame. */
export function parseSignal(value: unknown): number {
  return integer(object(value, "signal")["signal"], "signal", 1, 64);
}

/** What somebody wants of a log: some of its last lines, or what comes behind a position. */
export interface LogsWanted {
  readonly from: { readonly tail: number } | { readonly file: number; readonly byte: number };
  readonly isFollowing: boolean;
}

/** Parses the query of GET …/logs. */
export function parseLogsWanted(query: URLSearchParams): LogsWanted {
  const isFollowing = query.get("follow") === "1";
  const after = query.get("after");
  if (after === null) {
    return { from: { tail: integer(Number(query.get("tail") ?? "0"), "tail", 0, LOG_TAIL_MAX) }, isFollowing };
  }
  const [file, byte] = after.split(":").map((part) => integer(Number(part), "after", 0, Number.MAX_SAFE_INTEGER));
  if (file === undefined || byte === undefined) throw new InvalidMessage("after: expected file:byte");
  return { from: { file, byte }, isFollowing };
}

export function parseReference(value: unknown, where = "reference"): string {
  return matching(value, where, REFERENCE);
}

export function parseArch(value: unknown, where = "arch"): string | null {
  return nullable(value, (arch) => oneOf(arch, where, ["amd64", "arm64"] as const));
}

/** The tenant that asks for an image; null: the operator. */
export function parseTenant(value: unknown): string | null {
  return nullable(value, (tenant) => text(tenant, "tenantId", 128));
}

function parseEnvironment(value: unknown, where: string): Readonly<Record<string, string>> {
  let bytes = 0;
  const environment: Record<string, string> = {};
  for (const [name, item] of Object.entries(object(value ?? {}, where))) {
    if (name === "" || name.includes("=") || name.includes("\0")) {
      throw new InvalidMessage(`${where}: "${name.slice(0, 64)}" is no name of a variable`);
    }
    environment[name] = text(item, `${where}.${name.slice(0, 64)}`, ENV_BYTES_MAX);
    bytes += Buffer.byteLength(name) + Buffer.byteLength(environment[name]) + 2;
  }
  if (bytes > ENV_BYTES_MAX) throw new InvalidMessage(`${where}: ${bytes} bytes, at most ${ENV_BYTES_MAX}`);
  return environment;
}

function parseArgv(value: unknown, where: string): readonly string[] {
  const argv = list(value, where, 100_000).map((item) => text(item, where, ARGUMENT_BYTES_MAX));
  const bytes = argv.reduce((sum, item) => sum + Buffer.byteLength(item) + 1, 0);
  if (bytes > ARGV_BYTES_MAX) throw new InvalidMessage(`${where}: ${bytes} bytes, at most ${ARGV_BYTES_MAX}`);
  return argv;
}

function parsePath(value: unknown, where: string): string {
  const path = text(value, where, PATH_CHARACTERS_MAX);
  if (!path.startsWith("/")) throw new InvalidMessage(`${where}: expected an absolute path`);
  return path;
}

function nullable<T>(value: unknown, parse: (value: unknown) => T): T | null {
  return value === null || value === undefined ? null : parse(value);
}

function object(value: unknown, where: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new InvalidMessage(`${where}: expected an object`);
  }
  return value as Fields;
}

function list(value: unknown, where: string, itemsMax: number): readonly unknown[] {
  if (!Array.isArray(value) || value.length > itemsMax) {
    throw new InvalidMessage(`${where}: expected a list of at most ${itemsMax}`);
  }
  return value as readonly unknown[];
}

function text(value: unknown, where: string, charactersMax: number): string {
  if (typeof value !== "string" || value.length > charactersMax || value.includes("\0")) {
    throw new InvalidMessage(`${where}: expected a text of at most ${charactersMax} characters, without NUL`);
  }
  return value;
}

function matching(value: unknown, where: string, pattern: RegExp): string {
  if (typeof value !== "string" || !pattern.test(value))
    throw new InvalidMessage(`${where}: expected ${pattern.source}`);
  return value;
}

function integer(value: unknown, where: string, minimum: number, maximum: number): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < minimum || value > maximum) {
    throw new InvalidMessage(`${where}: expected a whole number from ${minimum} to ${maximum}`);
  }
  return value;
}

function oneOf<const T extends string>(value: unknown, where: string, words: readonly T[]): T {
  const found = words.find((word) => word === value);
  if (found === undefined) throw new InvalidMessage(`${where}: expected one of ${words.join(", ")}`);
  return found;
}
