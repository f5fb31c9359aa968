/**
 * The first machines of a Flotilla that was just started: create, start, first exec and delete, one after
 * another without a pause, so that few of them find a prepared VM.
 *
 * The templates are made before the first sample, as on any node that has run before. Unlike
 * `create-to-exec`, it does not wait for prepared VMs. The machines report how many of the samples used one.
 */
import { BenchFlotilla, IMAGE, type Made } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

/** Takes n samples. */
export async function fromNowhere(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  flotilla.requireOwn();
  await flotilla.untilPrepared(1);
  await flotilla.untilImageHasTemplate();
  await flotilla.stop();
  await flotilla.start();
  const made: Made[] = [];
  for (let sample = 0; sample < n; sample++) {
    const one = await flotilla.make();
    await flotilla.client.deleteMachine(one.machine.id);
    made.push(one);
  }
  const ours = summarize(made.map(({ answeredMs }) => answeredMs));
  const nodeMs = made.flatMap(({ machine }) => machine.startTimings?.totalMs ?? []);
  const countOf = (vm: string): number => made.filter(({ machine }) => machine.startTimings?.vm === vm).length;
  return {
    name: "from-nowhere",
    series: [
      { what: "create, start, first exec answered", summary: ours },
      ...(nodeMs.length === 0 ? [] : [{ what: "of it: start, on the node alone", summary: summarize(nodeMs) }]),
      { what: "of it: first exec", summary: summarize(made.map((one) => one.answeredMs - one.startedMs)) },
    ],
    reaches: [atMost("p50", ours.p50Ms, 200)],
    setting: { image: IMAGE, size: "default" },
    notes: [
      `${countOf("prepared")} of ${n} used a prepared VM, ${countOf("template")} were restored, ` +
        `${countOf("boot")} booted`,
    ],
  };
}
