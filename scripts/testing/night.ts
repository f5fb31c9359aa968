/**
 * `npm test -- night`: the test files of which every run plays a part, each with the settings that make it
 * long.
 */
export type Environment = Readonly<Record<string, string>>;

export const NIGHT: Readonly<Record<string, Environment>> = {
  "server/test/histories.test.ts": { FLOTILLA_TEST_HISTORIES: "100000" },
  "server/test/racing-usage.test.ts": { FLOTILLA_TEST_WRITERS: "10000" },
  "test/simulation/simulation.test.ts": { FLOTILLA_SEEDS: "2000" },
  "test/simulation/planted.test.ts": { FLOTILLA_BUGS: "all" },
  "test/cluster/any-order.test.ts": { FLOTILLA_PLAYS: "300" },
  "cli/test/up.test.ts": { FLOTILLA_CASES: "all" },
  "cli/test/up-stop.test.ts": { FLOTILLA_CASES: "all" },
  "test/cluster/moves.test.ts": { FLOTILLA_CASES: "all" },
  "test/cluster/upgrade.test.ts": { FLOTILLA_CASES: "all" },
  "test/traffic/app-traffic.test.ts": { FLOTILLA_TRAFFIC_REQUESTS: "100000", FLOTILLA_TRAFFIC_SLOW_SECONDS: "20" },
  "test/vm/any-order.test.ts": { FLOTILLA_PLAYS: "100" },
  "test/vm/branch-generators.test.ts": { FLOTILLA_TEST_CLONES: "50" },
  "test/vm/moving-commands.test.ts": { FLOTILLA_CASES: "all" },
  "test/vm/new-vmm.test.ts": { FLOTILLA_CASES: "all" },
  "test/vm/fence.test.ts": { FLOTILLA_CASES: "all" },
  "test/vm/prepared.test.ts": { FLOTILLA_CASES: "all", FLOTILLA_TEST_MACHINES: "40" },
  "test/vm/qemu.test.ts": { FLOTILLA_CASES: "all" },
  "test/crash/apps.test.ts": { FLOTILLA_CASES: "all" },
  "test/crash/database.test.ts": { FLOTILLA_TEST_CHAOS_SECONDS: "120" },
  "test/crash/node-qemu.test.ts": { FLOTILLA_TEST_CHAOS_SECONDS: "300" },
  "test/crash/webhooks.test.ts": { FLOTILLA_WEBHOOK_EVENTS: "100000", FLOTILLA_WEBHOOK_KILLS: "20" },
  "test/crash/bill.test.ts": { FLOTILLA_TEST_BILLED_MACHINES: "10", FLOTILLA_TEST_BILLED_SECONDS: "200" },
};

/** How long a file may take. */
export const NIGHT_FILE_MINUTES = 180;
