/**
 * The tenants of the installation, and the plans that bound them. For operators.
 */
import type { PlanInfo, TenantInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, queries } from "../api.ts";
import { plansQuery, tenantsQuery } from "../data.ts";
import { renderMb, renderMoney, shellWord } from "../format.ts";
import { useSession } from "../session.tsx";
import { attempt, Confirm } from "../ui/dialog.tsx";
import { Check, FormSheet } from "../ui/form.tsx";
import { Badge, Button, Cli, ErrorNote, Field, Loading, PageHead, Select, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { PlanForm } from "./plan.tsx";

const PLANS: readonly Column<PlanInfo>[] = [
  {
    name: "Plan",
    show: ({ id, name, isDefault }) => (
      <>
        <Link to="/plans/$id" params={{ id }}>
          {name}
        </Link>{" "}
        {isDefault && <Badge tone="good">default</Badge>}
      </>
    ),
    by: ({ name }) => name,
  },
  {
    name: "Most",
    show: (plan) => `${plan.maxMachines} machines, ${plan.maxTotalCpus} CPUs, ${renderMb(plan.maxTotalMemoryMb)}`,
  },
  {
    name: "CPU hour",
    show: (plan) => renderMoney(plan.rateCpuHourMicros),
    by: (plan) => plan.rateCpuHourMicros,
    isNumber: true,
  },
  {
    name: "GB hour",
    show: (plan) => renderMoney(plan.rateMemoryGbHourMicros),
    by: (plan) => plan.rateMemoryGbHourMicros,
    isNumber: true,
  },
  {
    name: "Budget",
    show: ({ monthlyBudgetMicros, budgetPolicy }) =>
      monthlyBudgetMicros === null ? "none" : `${renderMoney(monthlyBudgetMicros)}, ${budgetPolicy}`,
    isWide: true,
  },
];
const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["tenants"] });

export function TenantsPage() {
  const session = useSession();
  const tenants = useQuery(tenantsQuery);
  const plans = useQuery(plansQuery);
  const [isMaking, setIsMaking] = useState(false);
  const [isPlanning, setIsPlanning] = useState(false);
  const [suspended, setSuspended] = useState<TenantInfo | null>(null);
  const columns = useMemo<readonly Column<TenantInfo>[]>(
    () => [
      {
        name: "Tenant",
        show: ({ id, name }) => (
          <>
            <Link to="/tenants/$id" params={{ id }}>
              {name}
            </Link>{" "}
            {id === session.tenantId && <Badge tone="good">yours</Badge>}
          </>
        ),
        by: ({ name }) => name,
      },
      {
        name: "State",
        show: ({ status }) => <Badge tone={status === "active" ? "good" : "bad"}>{status}</Badge>,
        by: ({ status }) => status,
      },
      {
        name: "Plan",
        show: ({ planId }) => plans.data?.find(({ id }) => id === planId)?.name ?? "the default",
        by: ({ planId }) => planId ?? "",
      },
      { name: "Id", show: ({ id }) => <code>{id}</code>, isWide: true },
      {
        name: "Since",
        show: ({ createdAt }) => <Time at={createdAt} />,
        by: ({ createdAt }) => createdAt,
        isWide: true,
      },
      {
        name: "Actions",
        show: (tenant) =>
          tenant.status === "active" ? (
            <Button onClick={() => setSuspended(tenant)}>Suspend</Button>
          ) : (
            <Button
              onClick={() =>
                void attempt(`Reactivation of ${tenant.name}`, async () => {
                  await api.reactivateTenant(tenant.id);
                  await again();
                })
              }
            >
              Reactivate
            </Button>
          ),
      },
    ],
    [plans.data, session.tenantId],
  );
  return (
    <>
      <title>Tenants and plans · Flotilla</title>
      <PageHead title="Tenants and plans">
        <Button look="main" icon="plus" onClick={() => setIsMaking(true)}>
          Create tenant
        </Button>
      </PageHead>
      <ErrorNote error={tenants.error ?? plans.error} retry={() => void tenants.refetch()} />
      {tenants.isPending && <Loading what="tenants" />}
      {tenants.data !== undefined && (
        <DataTable label="Tenants" rows={tenants.data} columns={columns} idOf={({ id }) => id} sortedBy="Tenant" />
      )}
      <div className="filters">
        <h2 className="section">Plans</h2>
        <Button onClick={() => setIsPlanning(true)}>Create plan</Button>
      </div>
      {plans.data !== undefined && (
        <DataTable label="Plans" rows={plans.data} columns={PLANS} idOf={({ id }) => id} sortedBy="Plan" />
      )}
      <Cli line="flotilla plan ls" />
      {isPlanning && <PlanForm plan={null} tenants={0} onClose={() => setIsPlanning(false)} />}
      <Make plans={plans.data ?? []} isOpen={isMaking} onClose={() => setIsMaking(false)} />
      <Confirm
        title={`Suspend ${suspended?.name ?? ""}?`}
        verb="Suspend"
        isOpen={suspended !== null}
        onClose={() => setSuspended(null)}
        act={async () => {
          await api.suspendTenant(suspended?.id ?? "");
          await again();
        }}
      >
        <p>All its calls are refused, what it has open ends, and its machines are stopped. Nothing is deleted.</p>
        <Cli line={`flotilla tenant suspend ${suspended?.name ?? ""}`} />
      </Confirm>
    </>
  );
}

interface MakeProps {
  readonly plans: readonly PlanInfo[];
  readonly isOpen: boolean;
  readonly onClose: () => void;
}

function Make({ plans, isOpen, onClose }: MakeProps) {
  const [name, setName] = useState("");
  const [planId, setPlanId] = useState("");
  const [hasTestClock, setHasTestClock] = useState(false);
  return (
    <FormSheet
      title="Create a tenant"
      verb="Create"
      cli={`flotilla tenant create ${shellWord(name || "NAME")}${planId && ` --plan ${planId}`}${hasTestClock ? " --test-clock" : ""}`}
      isOpen={isOpen}
      onClose={onClose}
      act={async () => {
        const testClock = hasTestClock ? { testClock: true } : {};
        await api.createTenant({ name, ...(planId === "" ? {} : { planId }), ...testClock });
        await again();
        setName("");
      }}
    >
      {(faultOf) => (
        <>
          <Field
            label="Its name"
            value={name}
            onChange={(event) => setName(event.target.value)}
            fault={faultOf("name")}
            required
          />
          <Select
            label="Plan"
            value={planId}
            options={[["", "The default"], ...plans.map((plan) => [plan.id, plan.name] as const)]}
            onChange={setPlanId}
          />
          <Check
            label="With a test clock, to rehearse months: for good"
            isChecked={hasTestClock}
            onChange={setHasTestClock}
          />
        </>
      )}
    </FormSheet>
  );
}
