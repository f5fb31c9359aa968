/**
 * `flotilla app show APP`: an app and its instances; with --watch again whenever it changes.
 */
import type { Call } from "../call.ts";
import { appFacts, appLines } from "./view.ts";
import { watch, type WaitOptions } from "./wait.ts";

export async function run(
  call: Call,
  [name = ""]: readonly string[],
  options: Pick<WaitOptions, "watch">,
): Promise<number | void> {
  const { output } = call;
  if (options.watch === true) return await watch(call, name);
  const app = await call.flotilla().getApp(name);
  if (output.isJson) return output.json(app);
  const now = call.world.clock.now();
  output.facts(appFacts(app, now));
  for (const line of appLines(app, now)) output.line(line);
}
