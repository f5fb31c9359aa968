/**
 * Has a node export a machine's disk to the registry (contract/src/link/packages.ts).
 */
import { Refusal } from "@flotilla/contract/errors";
import { readExportLine } from "@flotilla/contract/link/generated";
import type { ExportFault, ExportLine, ExportRequest } from "@flotilla/contract/link/packages";
import { parseNodeText } from "../json/node-message.ts";
import { linesOf } from "./lines.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NodeRefused, NodeUnreachable } from "./refusals.ts";

/** A node sends nothing while it reads or sends one layer. */
const SILENCE_MAX_MS = 15 * 60_000;

export type ExportDone = Extract<ExportLine, { readonly kind: "done" }>;
export type ExportProgress = Extract<ExportLine, { readonly kind: "progress" }>;

/** The node has not exported the machine. */
export class ExportFailed extends Error {
  /** null: a repetition may succeed. */
  readonly fault: ExportFault | null;

  constructor(message: string, fault: ExportFault | null) {
    super(message);
    this.name = "ExportFailed";
    this.fault = fault;
  }
}

interface ExportCall {
  readonly machineId: string;
  readonly request: ExportRequest;
  readonly onProgress: (progress: ExportProgress) => void;
  readonly signal: AbortSignal;
}

/**
 * Resolves when the package is in the registry, under its tag. Throws ExportFailed, NodeUnreachable, also
 * when the answer was lost, and the reason of an aborted signal, which ends the export on the node.
 */
export async function exportMachine(
  link: NodeLink,
  node: NodeAddress,
  { machineId, request, onProgress, signal }: ExportCall,
): Promise<ExportDone> {
  try {
    const body = await link.open(node, {
      ...{ method: "POST", path: `/v1/machines/${machineId}/export`, contentType: "application/json" },
      ...{ body: JSON.stringify(request), headersTimeout: 0, bodyTimeout: SILENCE_MAX_MS, signal },
    });
    for await (const text of linesOf(body as AsyncIterable<Buffer>)) {
      const line = readExportLine(parseNodeText(text));
      if (line.kind === "done") return line;
      if (line.kind === "failed") throw new ExportFailed(line.message, line.code);
      onProgress(line);
    }
    throw new Error("the answer ended without a result");
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof ExportFailed || error instanceof Refusal) throw error;
    if (error instanceof NodeRefused) throw new ExportFailed(error.message, null);
    throw new NodeUnreachable(node.nodeId, error);
  }
}
