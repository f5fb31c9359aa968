/**
 * Packages without their bytes, and a node that a test plays, which says that it has exported a machine.
 */
import { createHash } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import type { DesiredMachine, MachineSpec } from "@flotilla/contract/link/link";
import type { ExportLine, ExportRequest } from "@flotilla/contract/link/packages";
import { MACHINE_ARTIFACT_TYPE } from "@flotilla/contract/package-artifact";
import { parseRepository } from "@flotilla/contract/reference";
import { type Database, sql } from "../../src/db/database.ts";
import type { PackageFacts } from "../../src/registry/facts.ts";
import { listenAtSocket, RESOURCES, TEST_JOIN_TOKEN } from "./node.ts";
import type { TestServer } from "./server.ts";

const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";
export const GB = 1024 ** 3;
const MB = 1024 ** 2;

export const digestOf = (what: string): string => `sha256:${createHash("sha256").update(what).digest("hex")}`;

export const FACTS: PackageFacts = {
  ...{ diskBytes: 3 * GB, architecture: "amd64", imageReference: "docker.io/library/alpine:latest" },
  ...{ imageDigest: digestOf("alpine"), machineId: "mach-gone" },
};

export interface PutPackage {
  readonly repository: string;
  readonly tag: string | null;
  /** What its digest is made from. */
  readonly content: string;
  /** Sizes in MiB, by what their digests are made from. */
  readonly layers?: Readonly<Record<string, number>>;
  readonly facts?: PackageFacts | null;
  readonly artifactType?: string | null;
}

/** Writes the rows of a package, as a push does at its end. Returns its digest. */
export async function putPackage(db: Database, put: PutPackage): Promise<string> {
  const { repository, tag, content, layers = { [content]: 1 }, facts = FACTS } = put;
  const { artifactType = MACHINE_ARTIFACT_TYPE } = put;
  const tenantId = parseRepository(repository)?.tenantId ?? null;
  const digest = digestOf(`manifest of ${content}`);
  await db.transaction(async (transaction) => {
    await transaction.execute(sql`
      INSERT INTO registry_manifests (repository, digest, tenant_id, media_type, artifact_type, bytes, facts, created_at, idle_since)
      VALUES (${repository}, ${digest}, ${tenantId}, ${MANIFEST_TYPE}, ${artifactType}, 1000, ${JSON.stringify(facts)}::jsonb, now(), now())
      ON CONFLICT DO NOTHING`);
    for (const [name, mb] of Object.entries(layers))
      await transaction.execute(sql`
        INSERT INTO registry_blobs (repository, manifest_digest, digest, bytes)
        VALUES (${repository}, ${digest}, ${digestOf(name)}, ${mb * MB}) ON CONFLICT DO NOTHING`);
    if (tag !== null)
      await transaction.execute(sql`
        INSERT INTO registry_tags (repository, tag, digest, updated_at) VALUES (${repository}, ${tag}, ${digest}, clock_timestamp())
        ON CONFLICT (repository, tag) DO UPDATE SET digest = excluded.digest, updated_at = excluded.updated_at`);
  });
  return digest;
}

export interface PlayedExport {
  readonly machineId: string;
  readonly request: ExportRequest;
  /** Sends a line. */
  say(line: ExportLine): void;
  readonly response: ServerResponse;
}

export interface PlayedNode {
  /** What the machines were last asked to be. */
  readonly specs: Map<string, MachineSpec>;
  readonly exports: ExportRequest[];
  /** How it exports; by default it has pushed all. */
  onExport: (exported: PlayedExport) => Promise<void> | void;
  /** Reports machines. */
  report(machines: readonly object[]): Promise<void>;
}

export const doneLine = (digest: string): ExportLine => ({
  ...{ kind: "done", digest, sizeBytes: 5 * MB, sentBytes: 2 * MB, layers: 3, sentLayers: 1 },
  platforms: ["linux/amd64"],
});

/** Pushes the machine's disk: the same package, however often. */
export function pushes(db: Database): PlayedNode["onExport"] {
  return async ({ machineId, request: { repository, tag }, say }) => {
    say({ kind: "progress", message: "sending", doneBytes: 1, totalBytes: 5 * MB });
    say(doneLine(await putPackage(db, { repository, tag, content: machineId })));
  };
}

/** Registers a node that runs each machine at once, and stops it at once. */
export async function playNode({ client, context }: TestServer): Promise<PlayedNode> {
  const specs = new Map<string, MachineSpec>();
  const exports: ExportRequest[] = [];
  const listener = createServer(async (request, response) => {
    const [, machineId = "", verb] = /^\/v1\/machines\/([^/?]+)(?:\/(\w+))?/.exec(request.url ?? "") ?? [];
    const body = await text(request);
    if (verb === "export") {
      const asked = JSON.parse(body) as ExportRequest;
      exports.push(asked);
      response.writeHead(200, { "content-type": "application/x-ndjson" }).flushHeaders();
      const say = (line: ExportLine): void => void response.write(`${JSON.stringify(line)}\n`);
      await node.onExport({ machineId, request: asked, say, response });
      response.end();
      return;
    }
    if (request.method !== "PUT") return void response.writeHead(404).end("{}");
    const { generation, state, spec } = JSON.parse(body) as DesiredMachine;
    if (spec !== null) specs.set(machineId, spec);
    response.end(JSON.stringify(observedAs(machineId, generation, state)));
  });
  const registered = await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", {
    ...{ id: "played", address: await listenAtSocket(listener) },
    ...{ totalCpus: 8, totalMemoryMb: 16_384, totalDiskGb: 100, labels: { arch: "amd64" } },
  });
  const node: PlayedNode = {
    ...{ specs, exports, onExport: pushes(context.db) },
    async report(machines) {
      const body = { bootId: "agent-1", isComplete: false, resources: RESOURCES, machines, events: [] };
      const answer = await client.withKey(registered.json.credential).post("/v1/nodes/played/heartbeat", body);
      if (answer.status !== 200) throw new Error(answer.text);
    },
  };
  await node.report([]);
  return node;
}

/** What the node says of a machine that is as it was asked to be. */
export const observedAs = (machineId: string, generation: number, state: string, more: object = {}): object => ({
  ...{ machineId, generation, state },
  ...(state === "running"
    ? { bootId: `boot-${machineId}-${generation}`, runningSince: Date.now(), readySince: Date.now() }
    : {}),
  ...more,
});
