/**
 * Limits that callers meet, each with its reason. Units are in the names.
 */

/** JSON bodies; big enough for `code` of 1 MiB escaped is not the aim here: exec and code have their own limit. */
export const JSON_BODY_BYTES_MAX = 1024 * 1024;
/** exec and code bodies: stdin of 16 MiB as JSON text, where a control character takes six bytes at worst in practice. */
export const EXEC_BODY_BYTES_MAX = 24 * 1024 * 1024;
/** What exec passes to the command's standard input. */
export const EXEC_STDIN_BYTES_MAX = 16 * 1024 * 1024;
/** The specification's cap for `stdout` and `stderr` as text. */
export const EXEC_TEXT_BYTES_MAX = 1024 * 1024;
/**
 * What a synchronous exec keeps of each stream for `stdoutB64` and `stderrB64`. Clients expect these byte-exact and
 * untruncated; a server must bound them, and says so with the truncation flags. Streaming has no cap.
 */
export const EXEC_B64_BYTES_MAX = 16 * 1024 * 1024;
export const EXEC_TIMEOUT_DEFAULT_SECONDS = 600;
export const EXEC_TIMEOUT_MAX_SECONDS = 24 * 60 * 60;
/** Exit code of a command that was ended because its time was up. */
export const EXIT_CODE_TIMEOUT = 124;
/** Exit code of an argv whose program does not exist in the machine. */
export const EXIT_CODE_NOT_FOUND = 255;

/** All of a machine's or an exec's environment together; the guest kernel refuses more than 2 MiB of argv and env. */
export const ENV_BYTES_MAX = 512 * 1024;
/** The kernel's limit for one argument or one `NAME=value`. */
export const ARGUMENT_BYTES_MAX = 128 * 1024;

export const CPUS_DEFAULT = 4;
export const MEMORY_MB_DEFAULT = 8192;
/** Disk of a machine that asks for none. Sparse: it costs what is written. */
export const DISK_GB_DEFAULT = 20;
export const CPUS_MAX = 64;
/** Below this the guest kernel has no room to start. */
export const MEMORY_MB_MIN = 128;
export const MEMORY_MB_MAX = 1024 * 1024;
/** 16 TiB, from the specification. */
export const DISK_GB_MAX = 16 * 1024;
export const PORTS_PER_MACHINE_MAX = 16;
export const PORTS_PER_MACHINE_DEFAULT = 4;
export const LABELS_MAX = 32;

/**
 * How long one question to a node waits for what was asked to come true. A start is asked about again until it has ended; a
 * stop that takes longer answers 503 and goes on.
 */
export const NODE_WAIT_MS = 28_000;

/** Lines of a log that one may ask for at once; and how many one gets who does not say. */
export const LOG_TAIL_MAX = 10_000;
export const LOG_TAIL_DEFAULT = 100;

/** Of a host's memory, that stays free for the node itself, and for machines that run to grow into. */
const MEMORY_KEPT_SHARE = 0.04;
const MEMORY_KEPT_MB_MIN = 256;

/** Below this much memory left no machine is started on a host with so much in all. */
export function memoryKeptMb(totalMemoryMb: number): number {
  return Math.max(MEMORY_KEPT_MB_MIN, Math.round(totalMemoryMb * MEMORY_KEPT_SHARE));
}

/** How often a machine that ends without being asked is started again within RESTART_WINDOW_MS. */
export const RESTARTS_MAX = 5;
export const RESTART_WINDOW_MS = 10 * 60_000;
