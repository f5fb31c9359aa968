/**
 * Packages: the export of a stopped machine with 200 MB, again unchanged, and after 1 MB has changed; and the
 * start of a machine from a package that its node has, against one from an image.
 *
 * The starts alternate, as in create-to-exec.ts, when the node prepares VMs for both. The content is that of
 * programs, so it packs as that of users.
 */
import { readdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import { monotonic, sleep } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, atMost, summarize } from "./support/statistics.ts";

const MB = 2 ** 20;
const CONTENT_BYTES = 200 * MB;
/** Programs and libraries of this host. */
const CONTENT_DIRECTORY = "/usr/lib/x86_64-linux-gnu";
const WARM_UP = 4;
/** A size of which the node prepares no VMs before they are needed, for either. */
const SIZE = { cpus: 1, memoryMb: 192, diskGb: 20 } as const;
const POLL_MS = 20;
const EXPORT_DEADLINE_MS = 600_000;

interface Exported {
  readonly tookMs: number;
  readonly reference: string;
  readonly digest: string;
  readonly sentBytes: number;
}

/** Takes n samples of each start, and three exports. */
export async function packages(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  await flotilla.liftLimits();
  const { id } = await flotilla.create({ name: "packed" });
  await flotilla.client.startMachine(id);
  const contentBytes = await fill(flotilla, id);
  await flotilla.client.stopMachine(id);
  const [first, unchanged] = [await exported(flotilla, id), await exported(flotilla, id)];
  await flotilla.client.startMachine(id);
  await flotilla.client.exec(id, { command: "head -c 1000000 /dev/urandom >/workspace/more; sync" });
  await flotilla.client.stopMachine(id);
  const changed = await exported(flotilla, id);
  const [image, packaged] = await starts(flotilla, changed.reference, n);
  const [ofImage, ofPackage] = [summarize(image), summarize(packaged)];
  const perSecond = (tookMs: number): number => contentBytes / MB / (tookMs / 1000);
  return {
    name: "packages",
    series: [
      { what: `export of ${Math.round(contentBytes / MB)} MB`, summary: summarize([first.tookMs]) },
      { what: "again, unchanged", summary: summarize([unchanged.tookMs]) },
      { what: "again, after a start and 1 MB", summary: summarize([changed.tookMs]) },
      { what: "create from a package, start, first exec answered", summary: ofPackage },
      { what: "the same from an image", summary: ofImage, isBaseline: true },
    ],
    reaches: [
      atLeast("export, MB of content per second", perSecond(first.tookMs), 50),
      atMost("sent of the unchanged disk", unchanged.sentBytes / MB, 0, "MB"),
      atMost("sent after 1 MB has changed", changed.sentBytes / MB, 4, "MB"),
      atMost("start p50 ÷ that from an image", ofPackage.p50Ms / ofImage.p50Ms, 1.2, ""),
    ],
    setting: { image: IMAGE, "size of those started": `${SIZE.memoryMb} MB` },
    notes: first.digest === unchanged.digest ? [] : ["the unchanged disk has another digest"],
  };
}

/** Puts files of this host on the machine's disk. Resolves with their size. */
async function fill(flotilla: BenchFlotilla, id: string): Promise<number> {
  let bytes = 0;
  for (const name of (await readdir(CONTENT_DIRECTORY)).toSorted()) {
    const found = path.join(CONTENT_DIRECTORY, name);
    const facts = await stat(found).catch(() => null);
    if (facts?.isFile() !== true || facts.size === 0 || bytes + facts.size > CONTENT_BYTES) continue;
    await flotilla.client.writeFile(id, await readFile(found), { query: { path: `/workspace/content-${name}` } });
    bytes += facts.size;
  }
  await flotilla.client.exec(id, { command: ["sync"] });
  return bytes;
}

async function exported({ client }: BenchFlotilla, id: string): Promise<Exported> {
  const since = monotonic();
  const begun = await client.exportMachine(id, { tag: "bench" }, { query: { detach: true } });
  const operationId = "id" in begun ? begun.id : "";
  for (;;) {
    const { status, steps, error } = await client.getOperation(operationId);
    if (status !== "running") {
      const { reference, digest, sentBytes } = steps.find((step) => step.digest !== undefined) ?? {};
      if (reference === undefined || digest === undefined) throw new Error(`the export failed: ${error}`);
      return { tookMs: monotonic() - since, reference, digest, sentBytes: sentBytes ?? Number.NaN };
    }
    if (monotonic() - since > EXPORT_DEADLINE_MS) throw new Error("the export does not end");
    await sleep(POLL_MS);
  }
}

/** How long machines of both take until their first command is answered. */
async function starts(flotilla: BenchFlotilla, reference: string, n: number) {
  const [image, packaged]: [number[], number[]] = [[], []];
  const sources = [
    [image, { type: "image", reference: IMAGE }],
    [packaged, { type: "smolmachine", reference }],
  ] as const;
  // The first fetches the package; after a few the node prepares VMs of both, and none of these counts.
  for (let sample = -WARM_UP; sample < n; sample += 1) {
    if (sample === 0) {
      await flotilla.untilImageHasTemplate();
      await flotilla.untilPrepared(WARM_UP);
    }
    for (const [took, source] of sources) {
      await flotilla.untilOneWaits();
      const since = monotonic();
      const { id } = await flotilla.create({ source, resources: SIZE });
      await flotilla.client.startMachine(id);
      await flotilla.execTrue(id);
      if (sample >= 0) took.push(monotonic() - since);
      await flotilla.client.deleteMachine(id);
    }
  }
  return [image, packaged] as const;
}
