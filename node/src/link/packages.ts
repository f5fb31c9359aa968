/**
 * The export of a machine on the link: contract/src/link/packages.ts describes the messages.
 */
import type { Clock } from "@flotilla/base/clock";
import { readExportRequest } from "@flotilla/contract/link/generated";
import type { ExportLine } from "@flotilla/contract/link/packages";
import { ExportFailed, type Exports } from "../packages/exports.ts";
import { readJson } from "./bodies.ts";
import type { Exchange } from "./exchange.ts";

export interface PackageParts {
  readonly exports: Exports;
  readonly clock: Clock;
}

/** Answers with the progress, and then how it ended. The export ends with its caller. */
export async function exportMachine(
  { request, response, parameters, signal }: Exchange,
  { exports, clock }: PackageParts,
): Promise<void> {
  const asked = readExportRequest(await readJson(request, clock));
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  const write = (line: ExportLine): void => void response.write(`${JSON.stringify(line)}\n`);
  try {
    write(await exports.export(parameters["id"] ?? "", asked, { onProgress: write, signal }));
  } catch (error) {
    if (!(error instanceof ExportFailed)) throw error;
    write({ kind: "failed", message: error.message, code: error.code });
  }
  response.end();
}
