/**
 * What a machine has used and cost: this month, and day by day.
 */
import type { MachineInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { api } from "../api.ts";
import { now } from "../clock.ts";
import { machineUsageQuery } from "../data.ts";
import { renderMoney, renderSeconds } from "../format.ts";
import { useSession } from "../session.tsx";
import { Cli, ErrorNote, Facts, Loading, Panel } from "../ui/parts.tsx";

const Chart = lazy(async () => ({ default: (await import("../chart.tsx")).Chart }));
const DAYS = 14;
const DAY_MS = 86_400_000;

/** The cost of each of the last days; days before the machine are left out. */
async function costsOfDays(machine: MachineInfo, signal: AbortSignal) {
  const until = now();
  const today = Math.floor(until / DAY_MS) * DAY_MS;
  const starts = Array.from({ length: DAYS }, (_, index) => today - (DAYS - 1 - index) * DAY_MS);
  const madeAt = Date.parse(machine.createdAt);
  return await Promise.all(
    starts
      .filter((start) => start + DAY_MS > madeAt)
      .map(async (start) => {
        const query = {
          from: new Date(start).toISOString(),
          to: new Date(Math.min(start + DAY_MS, until)).toISOString(),
        };
        const { cost } = await api.getMachineUsage(machine.id, { query, signal });
        return { at: new Date(start), value: cost.totalMicros };
      }),
  );
}

export function UsageTab({ machine }: { readonly machine: MachineInfo }) {
  const session = useSession();
  const usage = useQuery(machineUsageQuery(machine.id));
  const days = useQuery({
    queryKey: ["machine-parts", machine.id, "days"],
    queryFn: ({ signal }) => costsOfDays(machine, signal),
    retry: false,
  });
  const { data } = usage;
  return (
    <>
      <ErrorNote error={usage.error} retry={() => void usage.refetch()} />
      {usage.isPending && <Loading what="usage" />}
      {data !== undefined && (
        <div className="panels">
          <Panel title="This month">
            <p className="figure">{renderMoney(data.cost.totalMicros)}</p>
            <Facts
              rows={[
                ["It ran", renderSeconds(data.usage.totalUptimeSeconds)],
                ["Processors", `${data.usage.cpuHours.toFixed(3)} hours`],
                ["Memory", `${data.usage.memoryGbHours.toFixed(3)} GB hours`],
                ["Disk", `${data.usage.diskGbHours.toFixed(3)} GB hours`],
                ["Sent", `${data.usage.egressGb.toFixed(3)} GB`],
                ["Commands", data.usage.execCount],
              ]}
            />
          </Panel>
          <Panel title="What it comes from">
            <Facts
              rows={[
                ["Processors", renderMoney(data.cost.cpuMicros)],
                ["Memory", renderMoney(data.cost.memoryMicros)],
                ["Disk", renderMoney(data.cost.diskMicros)],
                ["Egress", renderMoney(data.cost.egressMicros)],
                ["While it runs", renderMoney(data.cost.baseMicros)],
              ]}
            />
          </Panel>
          <Panel title="By day">
            <Suspense fallback={<Loading what="the chart" />}>
              {days.data !== undefined && (
                <Chart label="Cost of each day, in UTC" points={days.data} render={renderMoney} />
              )}
            </Suspense>
            <ErrorNote error={days.error} />
          </Panel>
        </div>
      )}
      {session.can("usage:read") && <Cli line="flotilla usage" />}
    </>
  );
}
