/**
 * Limits that callers see, each with its reason. Units are in the names.
 */

/** JSON bodies. `code` of 1 MiB, escaped, would not fit: exec and code have their own limit. */
export const JSON_BODY_BYTES_MAX = 1024 * 1024;
/**
 * exec and code bodies: stdin of 16 MiB as JSON text, where a control character takes six bytes at worst in
 * practice.
 */
export const EXEC_BODY_BYTES_MAX = 24 * 1024 * 1024;
/** The most that exec passes to a command's standard input. */
export const EXEC_STDIN_BYTES_MAX = 16 * 1024 * 1024;
/** The specification's cap for `stdout` and `stderr` as text. */
export const EXEC_TEXT_BYTES_MAX = 1024 * 1024;
/**
 * What a synchronous exec keeps of each stream for `stdoutB64` and `stderrB64`. Clients expect these
 * byte-exact and untruncated; a server must bound them, and reports truncation with the flags. Streaming has
 * no cap.
 */
export const EXEC_B64_BYTES_MAX = 16 * 1024 * 1024;
export const EXEC_TIMEOUT_DEFAULT_SECONDS = 600;
export const EXEC_TIMEOUT_MAX_SECONDS = 24 * 60 * 60;
/** Exit code of a command that was ended by its timeout. */
export const EXIT_CODE_TIMEOUT = 124;
/** Exit code of an argv whose program does not exist in the machine. */
export const EXIT_CODE_NOT_FOUND = 255;

/** How long a kept terminal waits for its client. */
export const TERMINAL_KEPT_MS = 60_000;
/** How much input of a kept terminal may be sent that its machine has not taken. */
export const TERMINAL_INPUT_BYTES_MAX = 256 * 1024;

/**
 * The whole environment of a machine or an exec; the guest kernel refuses more than 2 MiB of argv and env.
 */
export const ENV_BYTES_MAX = 512 * 1024;
/** The kernel's limit for one argument or one `NAME=value`. */
export const ARGUMENT_BYTES_MAX = 128 * 1024;
/**
 * The guest's agent takes 8192 variables and 16384 arguments (guest/machine.h, guest/exec.c), with those of
 * the image and of a shell around the command.
 */
export const VARIABLES_MAX = 8_000;
export const ARGUMENTS_MAX = 16_000;

export const CPUS_DEFAULT = 4;
export const MEMORY_MB_DEFAULT = 8192;
/** Disk of a machine whose request gives no size. Sparse: it costs what is written. */
export const DISK_GB_DEFAULT = 20;
export const CPUS_MAX = 64;
/** With less, the guest kernel cannot start. */
export const MEMORY_MB_MIN = 128;
export const MEMORY_MB_MAX = 1024 * 1024;
/** How an app's instances are checked where its owner says nothing. */
export const HEALTH_INTERVAL_MS_DEFAULT = 10_000;
export const HEALTH_TIMEOUT_MS_DEFAULT = 5_000;
export const HEALTH_RETRIES_DEFAULT = 3;
/** 16 TiB, from the specification. */
export const DISK_GB_MAX = 16 * 1024;
export const PORTS_PER_MACHINE_MAX = 16;
export const PORTS_PER_MACHINE_DEFAULT = 4;
export const LABELS_MAX = 32;

/**
 * How long one request to a node waits for the desired state. A start is asked about again until it has
 * ended; a stop that takes longer answers 503 and continues.
 */
export const NODE_WAIT_MS = 28_000;

/**
 * How far the billing time of a tenant with a test clock may be ahead: ten years, of which each month is an
 * invoice.
 */
export const TEST_CLOCK_AHEAD_MS_MAX = 3650 * 24 * 60 * 60_000;

/** How many webhooks a tenant may have. */
export const WEBHOOKS_MAX = 20;
/** How many events of one webhook may wait in its own queue; the others wait in the tenant's events. */
export const WEBHOOK_PENDING_MAX = 1000;
/** How many deliveries that ended are kept for each webhook. */
export const WEBHOOK_DELIVERIES_KEPT = 1000;

/**
 * How many pools a tenant may have, and how many machines may wait in each. Its plan's ceilings bound what
 * they use.
 */
export const POOLS_MAX = 100;
export const POOL_SIZE_MAX = 100;

/** How many machines one request makes as branches of another. */
export const BRANCHES_MAX = 64;
/** How many checkpoints a tenant may have. Each takes space on a node that no plan counts. */
export const CHECKPOINTS_MAX = 100;

/** How long a hook of a machine may run: a start, a suspend and a branch wait for it. */
export const HOOK_TIMEOUT_DEFAULT_SECONDS = 10;
export const HOOK_TIMEOUT_MAX_SECONDS = 60;

/** More instances of one app than a fleet of a hundred nodes runs well; ten times that are several apps. */
export const REPLICAS_MAX = 1000;
/** An instance of a web server; a machine of a person is larger. */
export const APP_CPUS_DEFAULT = 1;
export const APP_MEMORY_MB_DEFAULT = 512;
/** Disk of an instance. Sparse: it costs what is written. */
export const APP_DISK_GB = 8;
/** Where images listen that expose no port. */
export const APP_PORT_DEFAULT = 8080;
export const PORT_MAX = 65_535;
/** How long open requests of an instance that leaves may continue, and the longest time for that. */
export const STOP_GRACE_SECONDS_DEFAULT = 10;
export const STOP_GRACE_SECONDS_MAX = 3600;
/**
 * How long instances of a release may take to start, and then to become healthy, before it is rolled back.
 */
export const PLACING_SECONDS_DEFAULT = 60;
export const HEALTHY_SECONDS_DEFAULT = 180;
export const DEADLINE_SECONDS_MAX = 24 * 3600;
/** The releases that one answer lists. */
export const RELEASES_LISTED_MAX = 100;

/** The largest number of tags that a retention of a package may name. */
export const PACKAGES_KEPT_MAX = 10_000;

/** How many records of volumes a tenant may have. */
export const VOLUMES_MAX = 1000;

/** The most lines of a log in one request, and the default. */
export const LOG_TAIL_MAX = 10_000;
export const LOG_TAIL_DEFAULT = 100;
/** The longest text to search a log for: a line is 16 KiB, and a query must fit into a request's head. */
export const LOG_SEARCH_CHARACTERS_MAX = 200;

/**
 * The share of a host's memory that stays free for the node itself, and for running machines to grow into.
 */
const MEMORY_KEPT_SHARE = 0.04;
const MEMORY_KEPT_MB_MIN = 256;

/** No machine is started on a host with this total memory when less than the result is free. */
export function memoryKeptMb(totalMemoryMb: number): number {
  return Math.max(MEMORY_KEPT_MB_MIN, Math.round(totalMemoryMb * MEMORY_KEPT_SHARE));
}

/** How often a machine that ended unexpectedly is restarted within RESTART_WINDOW_MS. */
export const RESTARTS_MAX = 5;
export const RESTART_WINDOW_MS = 10 * 60_000;
