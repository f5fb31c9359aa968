/**
 * Machines, and what is done in them.
 */
import type { Family, Measure } from "../family.ts";
import { codeHandlers } from "./code/routes.ts";
import { CommandAnswers } from "./exec/answer.ts";
import { execHandlers } from "./exec/routes.ts";
import { fileHandlers } from "./files/routes.ts";
import { budgetReconciler } from "./lifetime/budgets-loop.ts";
import { lifetimeReconciler } from "./lifetime/lifetimes-loop.ts";
import { logHandlers } from "./logs/routes.ts";
import { machineReconciler } from "./machines-loop.ts";
import { machineHandlers } from "./routes.ts";
import { countRunMismatches } from "./run-store.ts";
import type { MachineServices } from "./services.ts";
import { sessionHandlers } from "./sessions/routes.ts";
import { purgeTombstones } from "./store.ts";
import { terminalHandlers } from "./terminal/routes.ts";

export function machineFamily(services: MachineServices) {
  const answers = new CommandAnswers(services);
  return {
    name: "machines",
    handlers: {
      ...machineHandlers(services),
      ...execHandlers(services, answers),
      ...codeHandlers(services, answers),
      ...sessionHandlers(services, answers),
      ...terminalHandlers(services),
      ...fileHandlers(services),
      ...logHandlers(services),
    },
    loops: [machineReconciler(services), lifetimeReconciler(services), budgetReconciler(services)],
    // Deleted machines, with their runs: their usage stays readable for 30 days.
    purges: { machines: purgeTombstones },
    measures: [runMismatches(services)],
  } satisfies Family;
}

const runMismatches = ({ context: { db } }: Pick<MachineServices, "context">): Measure => ({
  kind: "gauge",
  name: "flotilla_run_mismatches",
  help: "open runs without a running boot, and running boots without an open run; both become 0 within seconds",
  labels: ["kind"],
  async read() {
    const { openWithoutBoot, bootWithoutRun } = await countRunMismatches(db);
    return [
      [{ kind: "run_without_boot" }, openWithoutBoot],
      [{ kind: "boot_without_run" }, bootWithoutRun],
    ];
  },
});
