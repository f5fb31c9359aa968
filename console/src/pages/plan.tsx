/**
 * One plan: its ceilings and budget, and every price with its time. For operators.
 *
 * Always: prices hold from a minute ahead on; what was used before keeps the price of then.
 */
import type { PlanInfo, RateInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { plansQuery, tenantsQuery } from "../data.ts";
import { renderCount, renderMb, renderMoney, shellWord } from "../format.ts";
import { usePathPart } from "../route.ts";
import { FormSheet, numberOrNull } from "../ui/form.tsx";
import {
  Badge,
  Button,
  Cli,
  Empty,
  ErrorNote,
  Facts,
  Field,
  Loading,
  PageHead,
  Panel,
  Select,
  Time,
} from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const MICROS = 1_000_000;
const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["plans"] });

/** Money as it is typed: `19.99`. */
const typed = (micros: number | null): string => (micros === null ? "" : String(micros / MICROS));
const microsOf = (text: string): number | null => (text.trim() === "" ? null : Math.round(Number(text) * MICROS));

const POLICIES = [
  ["none", "does nothing"],
  ["notify", "says so in an event"],
  ["block", "refuses creates and starts"],
  ["stop", "stops machines"],
] as const;

const RATES: readonly Column<RateInfo>[] = [
  { name: "From", show: ({ activeFrom }) => <Time at={activeFrom} isWhole />, by: ({ activeFrom }) => activeFrom },
  { name: "CPU hour", show: (rate) => renderMoney(rate.rateCpuHourMicros), isNumber: true },
  { name: "GB hour", show: (rate) => renderMoney(rate.rateMemoryGbHourMicros), isNumber: true },
  { name: "GB sent", show: (rate) => renderMoney(rate.rateEgressGbMicros), isNumber: true, isWide: true },
  {
    name: "Registry GB hour",
    show: (rate) => renderMoney(rate.rateRegistryGbHourMicros),
    isNumber: true,
    isWide: true,
  },
];

export function PlanPage() {
  const id = usePathPart("id");
  const plans = useQuery(plansQuery);
  const tenants = useQuery(tenantsQuery);
  const rates = useQuery({ queryKey: ["plans", id, "rates"], queryFn: ({ signal }) => api.listRates(id, { signal }) });
  const [asking, setAsking] = useState<"change" | "price" | null>(null);
  const plan = plans.data?.find((each) => each.id === id);
  if (plan === undefined)
    return plans.isPending ? <Loading what="the plan" /> : <Empty title="No such plan">{id}</Empty>;
  const having = (tenants.data ?? []).filter(({ planId }) => (planId === null ? plan.isDefault : planId === id));
  return (
    <>
      <title>{`${plan.name} · Flotilla`}</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/tenants">Tenants and plans</Link> / {plan.name}
      </nav>
      <PageHead title={plan.name} badge={plan.isDefault && <Badge tone="good">default</Badge>}>
        <Button onClick={() => setAsking("price")}>Set prices</Button>
        <Button look="main" onClick={() => setAsking("change")}>
          Change
        </Button>
      </PageHead>
      <div className="panels">
        <Panel title="Ceilings">
          <Facts
            rows={[
              ["Machines", `${plan.maxMachines}, of which ${plan.maxConcurrentMachines} run`],
              ["One machine", `${plan.maxCpus} CPUs, ${renderMb(plan.maxMemoryMb)}, ${plan.maxDiskGb} GB disk`],
              [
                "Together",
                `${plan.maxTotalCpus} CPUs, ${renderMb(plan.maxTotalMemoryMb)}, ${plan.maxTotalDiskGb} GB disk`,
              ],
              ["Apps", plan.maxApps],
              ["Egress", plan.maxEgressGb === null ? "no limit" : `${plan.maxEgressGb} GB a month`],
              ["Packages", plan.maxPackageGb === null ? "no limit" : `${plan.maxPackageGb} GB`],
              ["Requests", `${plan.rateRequestsPerSecond} a second, ${plan.rateBurst} at once`],
            ]}
          />
        </Panel>
        <Panel title="Budget">
          <Facts
            rows={[
              ["A month", plan.monthlyBudgetMicros === null ? "none" : renderMoney(plan.monthlyBudgetMicros)],
              ["When it is used", POLICIES.find(([name]) => name === plan.budgetPolicy)?.[1]],
              ["Credit at first", plan.freeCreditMicros === 0 ? null : renderMoney(plan.freeCreditMicros)],
              ["Tenants", having.length === 0 ? "none" : having.map(({ name }) => name).join(", ")],
            ]}
          />
        </Panel>
      </div>
      <h2 className="section">Prices</h2>
      <ErrorNote error={rates.error} retry={() => void rates.refetch()} />
      <DataTable
        label="Prices"
        rows={rates.data ?? []}
        columns={RATES}
        idOf={(rate) => rate.id}
        sortedBy="From"
        isDescending
        empty={<Empty title="No price was set" cli={`flotilla plan rate ${shellWord(plan.name)}`} />}
      />
      <Cli line={`flotilla plan rates ${shellWord(plan.name)}`} />
      {asking === "change" && <PlanForm plan={plan} tenants={having.length} onClose={() => setAsking(null)} />}
      {asking === "price" && <PriceForm plan={plan} tenants={having.length} onClose={() => setAsking(null)} />}
    </>
  );
}

interface PriceProps {
  readonly plan: PlanInfo;
  readonly tenants: number;
  readonly onClose: () => void;
}

const PRICES = [
  ["rateCpuHourMicros", "A CPU for an hour"],
  ["rateMemoryGbHourMicros", "A GB of memory for an hour"],
  ["rateEgressGbMicros", "A GB sent"],
  ["rateRegistryGbHourMicros", "A GB in the registry for an hour"],
] as const;

function PriceForm({ plan, tenants, onClose }: PriceProps) {
  const [prices, setPrices] = useState(() => Object.fromEntries(PRICES.map(([name]) => [name, typed(plan[name])])));
  const [from, setFrom] = useState("");
  return (
    <FormSheet
      title={`Prices of ${plan.name}`}
      verb="Set them"
      cli={`flotilla plan rate ${shellWord(plan.name)}${from && ` --from ${shellWord(from)}`}`}
      isOpen
      onClose={onClose}
      act={async () => {
        const request = Object.fromEntries(PRICES.map(([name]) => [name, microsOf(prices[name] ?? "")]));
        await api.createRate(plan.id, { ...request, ...(from === "" ? {} : { activeFrom: `${from}:00Z` }) });
        await again();
      }}
    >
      {(faultOf) => (
        <>
          <p className="dim">
            They hold for {renderCount(tenants, "tenant")} from then on; what was used before keeps its price. A price
            that was set is never changed.
          </p>
          {PRICES.map(([name, label]) => (
            <Field
              key={name}
              label={label}
              inputMode="decimal"
              value={prices[name] ?? ""}
              onChange={(event) => setPrices({ ...prices, [name]: event.target.value })}
              fault={faultOf(name)}
            />
          ))}
          <Field
            label="From (UTC)"
            type="datetime-local"
            value={from}
            onChange={(event) => setFrom(event.target.value)}
            hint="left empty: in a minute"
            fault={faultOf("activeFrom")}
          />
        </>
      )}
    </FormSheet>
  );
}

const CEILINGS = [
  ["maxMachines", "Machines"],
  ["maxConcurrentMachines", "Machines that run"],
  ["maxCpus", "CPUs of one machine"],
  ["maxMemoryMb", "Memory of one machine (MB)"],
  ["maxDiskGb", "Disk of one machine (GB)"],
  ["maxTotalCpus", "CPUs together"],
  ["maxTotalMemoryMb", "Memory together (MB)"],
  ["maxTotalDiskGb", "Disk together (GB)"],
  ["maxApps", "Apps"],
] as const;

interface PlanFormProps {
  /** null: a new one. */
  readonly plan: PlanInfo | null;
  readonly tenants: number;
  readonly onClose: () => void;
}

/** Makes or changes a plan. */
export function PlanForm({ plan, tenants, onClose }: PlanFormProps) {
  const [name, setName] = useState(plan?.name ?? "");
  const [budget, setBudget] = useState(typed(plan?.monthlyBudgetMicros ?? null));
  const [policy, setPolicy] = useState<PlanInfo["budgetPolicy"]>(plan?.budgetPolicy ?? "notify");
  const [ceilings, setCeilings] = useState<Readonly<Record<string, string>>>(() =>
    Object.fromEntries(CEILINGS.map(([each]) => [each, plan === null ? "" : String(plan[each])])),
  );
  const act = async (): Promise<void> => {
    const given = CEILINGS.flatMap(([each]) => {
      const value = numberOrNull(ceilings[each] ?? "");
      return value === null ? [] : [[each, value] as const];
    });
    const request = {
      ...{ name: name.trim(), budgetPolicy: policy, monthlyBudgetMicros: microsOf(budget) },
      ...Object.fromEntries(given),
    };
    await (plan === null ? api.createPlan(request) : api.updatePlan(plan.id, request));
    await again();
  };
  return (
    <FormSheet
      title={plan === null ? "Create a plan" : `Change ${plan.name}`}
      verb={plan === null ? "Create" : "Change"}
      cli={
        plan === null
          ? `flotilla plan create ${shellWord(name.trim() || "NAME")}`
          : `flotilla plan update ${shellWord(plan.name)} --budget ${budget.trim() || "none"}`
      }
      isOpen
      onClose={onClose}
      act={act}
    >
      {(faultOf) => (
        <>
          {plan !== null && (
            <p className="dim">
              It holds for {renderCount(tenants, "tenant")} at once. What runs above a lower ceiling runs on.
            </p>
          )}
          <Field
            label="Name"
            value={name}
            onChange={(event) => setName(event.target.value)}
            fault={faultOf("name")}
            required
          />
          <div className="row">
            <Field
              label="Budget of a month"
              inputMode="decimal"
              placeholder="none"
              value={budget}
              onChange={(event) => setBudget(event.target.value)}
              fault={faultOf("monthlyBudgetMicros")}
            />
            <Select
              label="When it is used, Flotilla"
              value={policy}
              options={POLICIES}
              onChange={(value) => setPolicy(value as PlanInfo["budgetPolicy"])}
            />
          </div>
          <details>
            <summary>Ceilings</summary>
            {CEILINGS.map(([each, label]) => (
              <Field
                key={each}
                label={label}
                type="number"
                min={0}
                placeholder="default"
                value={ceilings[each] ?? ""}
                onChange={(event) => setCeilings({ ...ceilings, [each]: event.target.value })}
                fault={faultOf(each)}
              />
            ))}
          </details>
        </>
      )}
    </FormSheet>
  );
}
