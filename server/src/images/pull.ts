/**
 * Fetches an image to nodes before it is needed: as an operation for any number of nodes, and within a
 * request for the node of a machine.
 *
 * Always:
 * - A node that has the image still asks its registry what the name means now, and downloads only what it
 *   lacks. So a pull may be repeated, by the owner or by a server that continues the operation.
 * - One node's failure does not stop the others.
 * - A node whose agent restarts is waited for.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import { Refusal } from "@flotilla/contract/errors";
import type { NodeImage } from "@flotilla/contract/link/link";
import { NodeUnreachable } from "../link/refusals.ts";
import { noteImage } from "../nodes/image-store.ts";
import { findNode, listNodes, type NodeRecord } from "../nodes/store.ts";
import { beginOnce, beginOperation } from "../operations/begin.ts";
import type { OperationRecord, OperationRun, OperationWorker } from "../family.ts";
import type { Services } from "../services.ts";
import { checkReference } from "../machines/image-reference.ts";
import { canonicalReference } from "@flotilla/contract/reference";

const PULL_DEADLINE_MS = 60 * 60_000;
/** How long a node's agent may be unreachable during a pull. */
const NODE_PATIENCE_MS = 60_000;
const NODE_RETRY_MS = 2_000;
/** More would query the same registry at the same time. */
const NODES_AT_A_TIME = 8;

interface PullInput {
  readonly reference: string;
  readonly nodeIds: readonly string[];
}

const stepOn = (nodeId: string): string => `pull to ${nodeId}`;

interface PullRequest {
  readonly operationId: string;
  readonly tenantId: string;
  readonly reference: string;
  readonly nodeId: string | null;
}

type RequestServices = Pick<Services, "context" | "registries">;

/** Requests a pull to one node, or to all that are ready. */
export const requestPull = (services: RequestServices, request: PullRequest): Promise<OperationRecord> =>
  beginOnce(services.context, request, () => begin(services, request));

async function begin({ context, registries }: RequestServices, request: PullRequest): Promise<OperationRecord> {
  const { tenantId, reference } = request;
  checkReference(registries, reference);
  const nodes = chooseNodes(await listNodes(context.db), request.nodeId);
  const input: PullInput = { reference, nodeIds: nodes.map(({ id }) => id) };
  return await beginOperation(context, {
    id: request.operationId,
    tenantId,
    kind: "image pull",
    resource: { kind: "image", id: canonicalReference(reference), name: reference },
    input,
    steps: input.nodeIds.map(stepOn),
    deadlineMs: PULL_DEADLINE_MS,
  });
}

function chooseNodes(nodes: readonly NodeRecord[], nodeId: string | null): readonly NodeRecord[] {
  const ready = nodes.filter(({ status }) => status === "ready");
  if (nodeId === null) {
    if (ready.length > 0) return ready;
    throw new Refusal("unavailable", "no node is ready to receive the image; check that one runs");
  }
  const node = nodes.find(({ id }) => id === nodeId);
  if (node === undefined)
    throw new Refusal("not_found", `node ${nodeId} was not found; GET /v1/images shows which nodes have images`, {
      resource: { kind: "node", id: nodeId },
      call: "GET /v1/images",
    });
  if (node.status !== "ready")
    throw new Refusal("unavailable", `node ${nodeId} is ${node.status} and accepts no image; try another node`);
  return [node];
}

type PullServices = Pick<Services, "context" | "link">;

export function imagePullWorker(services: PullServices): OperationWorker {
  return {
    kind: "image pull",
    async work(run) {
      const { reference, nodeIds } = run.operation.input as PullInput;
      const failures: Refusal[] = [];
      await mapAtMost(NODES_AT_A_TIME, nodeIds, async (nodeId) => {
        await pullOn(services, run, reference, nodeId).catch((error: unknown) => {
          if (!(error instanceof Refusal) || run.signal.aborted) throw error;
          failures.push(error);
        });
      });
      const [first] = failures;
      if (first === undefined) return;
      if (nodeIds.length === 1) throw first;
      const text = `image ${reference} could not be pulled to ${failures.length} of ${nodeIds.length} nodes`;
      throw new Refusal(first.code, `${text}: ${first.message}`);
    },
  };
}

async function pullOn(services: PullServices, run: OperationRun, reference: string, nodeId: string): Promise<void> {
  const { signal, operation } = run;
  const { tenantId } = operation;
  await run.step(stepOn(nodeId), async (say) => {
    const image = await pullPatiently(services, { tenantId, reference, nodeId, onProgress: say, signal });
    const layers = image.layerCount === 1 ? "1 layer" : `${image.layerCount} layers`;
    return `${image.digest}, ${layers}, ${Math.ceil(image.sizeBytes / 1024 ** 2)} MB on the disk`;
  });
}

interface NodePull {
  readonly tenantId: string;
  readonly reference: string;
  readonly nodeId: string;
  readonly onProgress: (message: string) => void;
  readonly signal: AbortSignal;
}

/** Continues when the node's agent restarts during the pull; the node keeps what it had fetched. */
async function pullPatiently(services: PullServices, pull: NodePull): Promise<NodeImage> {
  const { context, link } = services;
  const { reference, tenantId, nodeId, signal } = pull;
  let lastProgressAt = context.clock.monotonic();
  const onProgress = (message: string): void => {
    lastProgressAt = context.clock.monotonic();
    pull.onProgress(message);
  };
  for (;;) {
    const node = await findNode(context.db, nodeId);
    if (node === undefined || node.status === "revoked")
      throw new Refusal("not_found", `node ${nodeId} is not in the cluster any more`);
    try {
      const address = { nodeId, address: node.address };
      const image = await link.pullImage(address, { reference, arch: null, tenantId }, { onProgress, signal });
      await noteImage(context.db, nodeId, image, tenantId);
      return image;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof NodeUnreachable) || context.clock.monotonic() - lastProgressAt > NODE_PATIENCE_MS)
        throw error;
    }
    pull.onProgress(`node ${nodeId} does not answer; it is asked again`);
    await context.clock.sleep(NODE_RETRY_MS, signal);
  }
}
