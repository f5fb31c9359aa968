/**
 * What of E2B's interface is served, and the versions of its clients that were tested: one table, printed by
 * `flotilla e2b --support`. Pure.
 */
interface Method {
  readonly name: string;
  readonly state: "yes" | "partly" | "no";
  /** What differs, or what is answered instead. */
  readonly note: string;
}

const yes = (name: string, note = ""): Method => ({ name, state: "yes", note });
const partly = (name: string, note: string): Method => ({ name, state: "partly", note });
const no = (name: string, note = "501"): Method => ({ name, state: "no", note });

/** Versions of E2B's packages whose story passes: test/e2b. */
const TESTED = [
  "e2b 2.21.0",
  "e2b 2.30.5",
  "e2b 2.45.0",
  "e2b 2.50.0",
  "e2b 2.51.0",
  "@e2b/code-interpreter 2.8.0",
] as const;

const METHODS: readonly Method[] = [
  yes("Sandbox.create", "300 s, with internet, killed at its end; the image needs python3 and bash"),
  yes("templates base, code-interpreter-v1", "made from Debian's packages when first needed: docs/e2b.md"),
  partly(
    "Sandbox.create network",
    "denyOut of everything with allowOut, maskRequestHost; no rules, proxies, httpsPorts",
  ),
  no("Sandbox.create volumeMounts, mcp, iam"),
  yes("Sandbox.connect", "extends the time only"),
  yes("Sandbox.list", "state, metadata, template, order, pages"),
  yes("Sandbox.getInfo, isRunning, setTimeout, kill"),
  yes("Sandbox.pause, betaPause, resume", "with memory, or the disk alone"),
  yes("lifecycle onTimeout: pause, with and without memory", "without the gateway within 15 s, by the server"),
  yes("lifecycle autoResume", "by any request but that of isRunning, for 300 s"),
  partly("Sandbox.fork", "up to 64"),
  partly("Sandbox.createSnapshot, listSnapshots, deleteSnapshot", "a sandbox from one has the network of its source"),
  partly("Sandbox.getMetrics", "one sample, of now, if the range has it"),
  no("Sandbox.updateNetwork"),
  yes("commands.run, list, kill, sendStdin, closeStdin, connect"),
  yes("pty.create, connect, sendInput, resize, kill"),
  yes("files.read, write, list, getInfo, exists, makeDir, rename, remove"),
  yes("files.watchDir", "also the polled form"),
  yes("files metadata, gzip, octet streams, ranges"),
  yes("downloadUrl, uploadUrl"),
  yes("getHost", "any port, also of the sandbox's loopback, and WebSockets; the domain must lead to the gateway"),
  partly("code interpreter: runCode, contexts", "Python and JavaScript; pictures and tables, no data of charts"),
  no("Template.build, tags, aliases"),
  no("volumes, secrets"),
];

/**
 * E2B's own tests of its client 2.51 that need a service, played against real machines without KVM: area,
 * passed, played. Four that need the internet were not.
 */
const OWN_TESTS: readonly (readonly [string, number, number])[] = [
  ["sandboxes: create, connect, list, info, kill, metrics", 23, 24],
  ["pause, resume, timeout, lifecycle", 18, 18],
  ["fork", 4, 4],
  ["snapshots", 9, 9],
  ["commands", 18, 18],
  ["terminals", 5, 6],
  ["files", 53, 53],
  ["network, ports", 9, 14],
];

/** The tests that do not pass. */
const FAILING = [
  "MCP gateway start failure kills the created sandbox: 501",
  "pty connect/reconnect: a shell that KVM does not help takes longer than the 0.3 s that the test waits",
  "httpsPorts option; deny specific IP address; updateNetwork, both; firewall transform: 501",
] as const;

/** The table as text. */
export function supportTable(): string {
  const rows = METHODS.map(({ name, state, note }) => [name, state, note]);
  const widths = [0, 1].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const lines = rows.map(([name = "", state = "", note = ""]) =>
    `${name.padEnd(widths[0] ?? 0)}  ${state.padEnd(widths[1] ?? 0)}  ${note}`.trimEnd(),
  );
  const areas = OWN_TESTS.map(([area, passed, played]) => `  ${area}: ${passed} of ${played}`);
  const own = ["E2B's own tests of e2b 2.51.0, in emulated machines:", ...areas, "  not passed:"];
  const failing = FAILING.map((name) => `    ${name}`);
  return [...lines, "", `tested with: ${TESTED.join(", ")}`, "", ...own, ...failing].join("\n");
}
