/**
 * The export of a machine on the link: contract/src/link/packages.ts describes the messages.
 */
import type { Clock } from "@flotilla/base/clock";
import { readExportRequest } from "@flotilla/contract/link/generated";
import type { ExportLine } from "@flotilla/contract/link/packages";
import { readJson } from "./bodies.ts";
import type { Exchange } from "./exchange.ts";

export interface PackageParts {
  readonly clock: Clock;
}

/** Answers with the progress, and then how it ended. */
export async function exportMachine({ request, response }: Exchange, { clock }: PackageParts): Promise<void> {
  readExportRequest(await readJson(request, clock));
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  const line: ExportLine = { kind: "failed", message: "this node exports no machines yet", code: null };
  response.end(`${JSON.stringify(line)}\n`);
}
