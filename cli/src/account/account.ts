/**
 * `flotilla account`: the tenant's plan, its limits, and the usage and cost of the current month in UTC.
 */
import { renderMicros } from "@flotilla/base/money";
import type { AccountInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { renderMemory } from "../table.ts";
import { costFacts, usageFacts } from "./money.ts";

export async function run(call: Call): Promise<void> {
  const account = await call.flotilla().getAccount();
  if (call.output.isJson) return call.output.json(account);
  call.output.facts([
    ["tenant", account.tenantId],
    ["status", account.status],
    ["test clock", account.testClock],
    ["plan", account.plan?.name ?? null],
    ["machines", machines(account)],
    ["one machine", sizes(account.effectiveMaxCpus, account.effectiveMaxMemoryMb, account.effectiveMaxDiskGb)],
    [
      "all together",
      sizes(account.effectiveMaxTotalCpus, account.effectiveMaxTotalMemoryMb, account.effectiveMaxTotalDiskGb),
    ],
    ["egress", egress(account)],
    ["packages", packages(account)],
    ["budget", budget(account)],
    ["credit", account.prepaidCreditMicros === 0 ? null : renderMicros(account.prepaidCreditMicros)],
  ]);
  call.output.line();
  call.output.facts([...usageFacts(account.periodUsage), ...costFacts(account.periodCost)]);
}

const machines = ({ effectiveMaxMachines, plan }: AccountInfo): string =>
  `at most ${effectiveMaxMachines}${plan === null ? "" : `, ${plan.maxConcurrentMachines} of them running`}`;

function egress({ plan, periodUsage }: AccountInfo): string | null {
  const max = plan?.maxEgressGb ?? null;
  return max === null ? null : `at most ${max} GB a month, ${periodUsage.egressGb.toFixed(3)} sent`;
}

function packages({ plan }: AccountInfo): string | null {
  const max = plan?.maxPackageGb ?? null;
  return max === null ? null : `at most ${max} GB`;
}

const sizes = (cpus: number, memoryMb: number, diskGb: number): string =>
  `at most ${cpus} CPUs, ${renderMemory(memoryMb)} memory, ${diskGb} GB disk`;

function budget({ monthlyBudgetMicros, budgetRemainingMicros, heldMicros, plan }: AccountInfo): string | null {
  if (monthlyBudgetMicros === null || budgetRemainingMicros === null) return null;
  const policy = plan === null ? "" : ` (policy: ${plan.budgetPolicy})`;
  const held = heldMicros === 0 ? "" : `, ${renderMicros(heldMicros)} of it held for running machines`;
  return `${renderMicros(monthlyBudgetMicros)} a month, ${renderMicros(budgetRemainingMicros)} remaining${held}${policy}`;
}
