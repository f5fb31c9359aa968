/**
 * One tenant: its plan and ceilings, what it has used, its invoices and its ledger. For operators.
 */
import type { PlanInfo, TenantInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { plansQuery, tenantsQuery } from "../data.ts";
import { renderMoney, shellWord } from "../format.ts";
import { usePathPart } from "../route.ts";
import { attempt, Confirm } from "../ui/dialog.tsx";
import { Check, FormSheet, numberOrNull } from "../ui/form.tsx";
import { Badge, Button, Cli, Empty, Facts, Field, Loading, PageHead, Panel, Select, Time } from "../ui/parts.tsx";
import { Ledger } from "./ledger.tsx";

const MICROS = 1_000_000;
const again = async (): Promise<void> => {
  await Promise.all([
    queries.invalidateQueries({ queryKey: ["tenants"] }),
    queries.invalidateQueries({ queryKey: ["ledger"] }),
  ]);
};

export function TenantPage() {
  const id = usePathPart("id");
  const tenants = useQuery(tenantsQuery);
  const plans = useQuery(plansQuery);
  const usage = useQuery({
    queryKey: ["tenants", id, "usage"],
    queryFn: ({ signal }) => api.listMeters({ signal }),
    retry: false,
  });
  const [asking, setAsking] = useState<"change" | "credit" | "suspend" | null>(null);
  const [isBusy, setIsBusy] = useState(false);
  const tenant = tenants.data?.find((each) => each.id === id);
  if (tenant === undefined)
    return tenants.isPending ? <Loading what="the tenant" /> : <Empty title="No such tenant">{id}</Empty>;
  const plan = (plans.data ?? []).find((each) => (tenant.planId === null ? each.isDefault : each.id === tenant.planId));
  const meter = usage.data?.find(({ tenantId }) => tenantId === id);
  const isActive = tenant.status === "active";
  const reactivate = async (): Promise<void> => {
    setIsBusy(true);
    await attempt(`Reactivation of ${tenant.name}`, async () => {
      await api.reactivateTenant(id);
      await again();
    });
    setIsBusy(false);
  };
  const close = (): void => setAsking(null);
  return (
    <>
      <title>{`${tenant.name} · Flotilla`}</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/tenants">Tenants and plans</Link> / {tenant.name}
      </nav>
      <PageHead title={tenant.name} badge={<Badge tone={isActive ? "good" : "bad"}>{tenant.status}</Badge>}>
        <Button onClick={() => setAsking("credit")}>Credit</Button>
        {isActive ? (
          <Button look="danger" onClick={() => setAsking("suspend")}>
            Suspend
          </Button>
        ) : (
          <Button isBusy={isBusy} onClick={() => void reactivate()}>
            Reactivate
          </Button>
        )}
        <Button look="main" onClick={() => setAsking("change")}>
          Change
        </Button>
      </PageHead>
      <div className="panels">
        <Panel title="Tenant">
          <Facts
            rows={[
              [
                "Plan",
                plan && (
                  <Link key="p" to="/plans/$id" params={{ id: plan.id }}>
                    {plan.name}
                  </Link>
                ),
              ],
              ["CPUs of one machine", tenant.maxCpus ?? "as the plan"],
              ["Memory of one machine", tenant.maxMemoryMb === null ? "as the plan" : `${tenant.maxMemoryMb} MB`],
              ["Disk of one machine", tenant.maxDiskGb === null ? "as the plan" : `${tenant.maxDiskGb} GB`],
              ["Credit left", renderMoney(tenant.freeCreditMicros)],
              ["Billing id", tenant.externalBillingId],
              ["Test clock", tenant.testClock],
              ["Created", <Time key="c" at={tenant.createdAt} isWhole />],
              ["Id", <code key="i">{tenant.id}</code>],
            ]}
          />
        </Panel>
        {meter !== undefined && (
          <Panel title="This month">
            {meter.cost !== null && <p className="figure">{renderMoney(meter.cost.totalMicros)}</p>}
            <Facts
              rows={[
                ["Processors", `${meter.cpuHours.toFixed(3)} hours`],
                ["Memory", `${meter.memoryGbHours.toFixed(3)} GB hours`],
                ["Disk", `${meter.diskGbHours.toFixed(3)} GB hours`],
                ["Sent", `${meter.egressGb.toFixed(3)} GB`],
                ["Registry", `${meter.registryGbHours.toFixed(3)} GB hours`],
              ]}
            />
          </Panel>
        )}
      </div>
      <h2 className="section">Ledger</h2>
      <Ledger tenantId={id} name={tenant.name} />
      {asking === "change" && <ChangeForm tenant={tenant} plans={plans.data ?? []} onClose={close} />}
      {asking === "credit" && <CreditForm tenant={tenant} onClose={close} />}
      <Confirm
        title={`Suspend ${tenant.name}?`}
        verb="Suspend"
        isOpen={asking === "suspend"}
        onClose={close}
        act={async () => {
          await api.suspendTenant(id);
          await again();
        }}
      >
        <p>All its calls are refused, what it has open ends, and its machines are stopped. Nothing is deleted.</p>
        <Cli line={`flotilla tenant suspend ${shellWord(tenant.name)}`} />
      </Confirm>
    </>
  );
}

interface ChangeProps {
  readonly tenant: TenantInfo;
  readonly plans: readonly PlanInfo[];
  readonly onClose: () => void;
}

function ChangeForm({ tenant, plans, onClose }: ChangeProps) {
  const [planId, setPlanId] = useState(tenant.planId ?? "");
  const [cpus, setCpus] = useState(String(tenant.maxCpus ?? ""));
  const [memoryMb, setMemoryMb] = useState(String(tenant.maxMemoryMb ?? ""));
  const [diskGb, setDiskGb] = useState(String(tenant.maxDiskGb ?? ""));
  const [billingId, setBillingId] = useState(tenant.externalBillingId ?? "");
  const ceiling = (label: string, field: string, value: string, set: (value: string) => void, fault: string | null) => (
    <Field
      key={field}
      label={label}
      type="number"
      min={1}
      placeholder="as the plan"
      value={value}
      onChange={(event) => set(event.target.value)}
      fault={fault}
    />
  );
  return (
    <FormSheet
      title={`Change ${tenant.name}`}
      verb="Change"
      cli={`flotilla tenant update ${shellWord(tenant.name)} --plan ${planId || "default"}`}
      isOpen
      onClose={onClose}
      act={async () => {
        await api.updateTenant(tenant.id, {
          ...{ planId: planId === "" ? null : planId, externalBillingId: billingId.trim() || null },
          ...{ maxCpus: numberOrNull(cpus), maxMemoryMb: numberOrNull(memoryMb), maxDiskGb: numberOrNull(diskGb) },
        });
        await again();
      }}
    >
      {(faultOf) => (
        <>
          <Select
            label="Plan"
            value={planId}
            options={[["", "The default plan"], ...plans.map(({ id, name }) => [id, name] as const)]}
            onChange={setPlanId}
          />
          <p className="dim small">What was used before keeps the price of its plan.</p>
          <div className="row">
            {ceiling("CPUs of one machine", "maxCpus", cpus, setCpus, faultOf("maxCpus"))}
            {ceiling("Its memory (MB)", "maxMemoryMb", memoryMb, setMemoryMb, faultOf("maxMemoryMb"))}
            {ceiling("Its disk (GB)", "maxDiskGb", diskGb, setDiskGb, faultOf("maxDiskGb"))}
          </div>
          <Field
            label="Its id in your billing"
            value={billingId}
            onChange={(event) => setBillingId(event.target.value)}
            fault={faultOf("externalBillingId")}
          />
        </>
      )}
    </FormSheet>
  );
}

function CreditForm({ tenant, onClose }: { readonly tenant: TenantInfo; readonly onClose: () => void }) {
  const [amount, setAmount] = useState("");
  const [note, setNote] = useState("");
  const [isTaken, setIsTaken] = useState(false);
  return (
    <FormSheet
      title={isTaken ? `Take from the balance of ${tenant.name}` : `Credit ${tenant.name}`}
      verb={isTaken ? "Take" : "Credit"}
      isDanger={isTaken}
      cli={`flotilla billing credit ${shellWord(tenant.name)} ${amount || "AMOUNT"}${isTaken ? " --take-back" : ""}`}
      isOpen
      onClose={onClose}
      act={async () => {
        const micros = Math.round(Number(amount) * MICROS) * (isTaken ? -1 : 1);
        const kind = isTaken ? ("adjustment" as const) : ("credit" as const);
        await api.postToLedger({ tenantId: tenant.id, micros, kind, ...(note === "" ? {} : { note }) });
        await again();
      }}
    >
      {(faultOf) => (
        <>
          <p className="dim">It is written to the ledger for good; another entry can only balance it.</p>
          <Field
            label="Amount"
            inputMode="decimal"
            value={amount}
            onChange={(event) => setAmount(event.target.value)}
            fault={faultOf("micros")}
            required
          />
          <Field label="Note" value={note} onChange={(event) => setNote(event.target.value)} fault={faultOf("note")} />
          <Check label="Take it off the balance instead" isChecked={isTaken} onChange={setIsTaken} />
        </>
      )}
    </FormSheet>
  );
}
