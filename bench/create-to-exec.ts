/**
 * Create, start and the first exec of a machine of the default size, each through the public API, one machine
 * after another; against a container engine's `run` of the same program, where one works.
 *
 * The two alternate, so that a host that gets slower during the run does not favour one of them. Before the
 * first sample the image is cached on the node and the node has had time to prepare VMs; the machines report
 * how many of the samples used one. Deleting a machine is not timed.
 */
import { Containers } from "./support/container.ts";
import { BenchFlotilla, IMAGE, type Made } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

/** Takes n samples of each. */
export async function createToExec(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  const containers = await Containers.open();
  try {
    const waiting = await flotilla.warmUp(n);
    const made: Made[] = [];
    const containerMs: number[] = [];
    // The first of everything is slower, on both sides: neither counts.
    for (let sample = -1; sample < n; sample++) {
      const one = await flotilla.make();
      await flotilla.client.deleteMachine(one.machine.id);
      const otherMs = typeof containers === "string" ? null : await containers.runMs();
      if (sample < 0) continue;
      made.push(one);
      if (otherMs !== null) containerMs.push(otherMs);
    }
    return findingOf(made, containerMs, [
      `${waiting ?? "an unknown number of"} prepared VMs before the first sample`,
      typeof containers === "string" ? `no container engine to compare with: ${containers}` : containers.how,
    ]);
  } finally {
    if (typeof containers !== "string") await containers[Symbol.asyncDispose]();
  }
}

function findingOf(made: readonly Made[], containerMs: readonly number[], notes: readonly string[]): Finding {
  const ours = summarize(made.map(({ answeredMs }) => answeredMs));
  const container = containerMs.length === 0 ? null : summarize(containerMs);
  const totalMs = made.flatMap(({ machine }) => machine.startTimings?.totalMs ?? []);
  const prepared = made.filter(({ machine }) => machine.startTimings?.vm === "prepared").length;
  return {
    name: "create-to-exec",
    series: [
      { what: "create, start, first exec answered", summary: ours },
      ...(container === null
        ? []
        : [{ what: "container engine: run of `true`", summary: container, isBaseline: true as const }]),
      { what: "of it: create", summary: summarize(made.map((one) => one.createdMs)) },
      { what: "of it: start", summary: summarize(made.map((one) => one.startedMs - one.createdMs)) },
      ...(totalMs.length === 0 ? [] : [{ what: "of it: start, on the node alone", summary: summarize(totalMs) }]),
      { what: "of it: first exec", summary: summarize(made.map((one) => one.answeredMs - one.startedMs)) },
    ],
    reaches: [
      atMost("p50", ours.p50Ms, 100),
      atMost("p99", ours.p99Ms, 300),
      ...(container === null ? [] : [atMost("p50 ÷ the container engine's", ours.p50Ms / container.p50Ms, 1, "")]),
    ],
    setting: { image: IMAGE, size: "default" },
    notes: [...notes, `${prepared} of ${made.length} used a prepared VM`],
  };
}
