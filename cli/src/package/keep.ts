/**
 * `flotilla package keep NAME --last N`: keeps only the newest tags of a package. Without a name it lists
 * what is kept.
 */
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";

export interface KeepOptions {
  readonly last?: number;
  readonly all?: boolean;
}

export async function run(call: Call, [name]: readonly string[], { last, all }: KeepOptions): Promise<void> {
  const flotilla = call.flotilla();
  if (name === undefined) {
    if (last !== undefined || all === true) throw usage("no package was named", "such as `package keep web --last 3`");
    const kept = await flotilla.listPackageRetention();
    if (call.output.isJson) return call.output.json(kept);
    if (kept.length === 0) return call.output.note("all tags of all packages are kept");
    return call.output.table(
      ["PACKAGE", "KEPT"],
      kept.map((each) => [each.name, `the newest ${each.keepLast ?? ""}`]),
    );
  }
  if ((last === undefined) === (all === undefined))
    throw usage("say how many are kept", "either --last with a number, or --all");
  const kept = await flotilla.setPackageRetention({ name, keepLast: last ?? null });
  if (call.output.isJson) return call.output.json(kept);
  call.output.line(kept.name);
}
