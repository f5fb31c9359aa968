/**
 * `flotilla app ls`: the apps, and how many instances of each serve.
 */
import type { Call } from "../call.ts";
import { APP_HEADS, appRow } from "./view.ts";

export async function run(call: Call): Promise<void> {
  const apps = await call.flotilla().listApps();
  if (call.output.isJson) return call.output.json(apps);
  const now = call.world.clock.now();
  call.output.table(
    APP_HEADS,
    apps.map((app) => appRow(app, now)),
  );
}
