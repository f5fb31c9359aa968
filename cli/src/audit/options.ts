/**
 * Whose log the verbs of `flotilla audit` read.
 */
import { usage } from "../failure.ts";

export interface TenantOptions {
  readonly tenant?: string;
  readonly all?: boolean;
}

/** Throws a usage error when both are named. */
export function checkTenantOptions({ tenant, all = false }: TenantOptions): void {
  if (all && tenant !== undefined) throw usage("--all and --tenant exclude each other", "name one of them");
}
