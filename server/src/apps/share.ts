/**
 * Makes and ends the share link of an app, with which people without a key open an app that is not public.
 *
 * Always: what an earlier link has opened ends, on every server.
 */
import { hashKey, makeShareToken } from "../auth/keys.ts";
import type { Context } from "../context.ts";
import type { MachineServices } from "../machines/services.ts";
import { notFound } from "../missing.ts";
import { requireApp } from "./reading.ts";
import { putAppShare, removeAppShare } from "./share-store.ts";
import { type AppName, type AppRecord, noteEvents } from "./store.ts";
import { urlOf } from "./view.ts";

type ShareServices = Pick<MachineServices, "addresses" | "context">;

/** Throws a Refusal when there is no such app. */
export async function shareApp(
  { addresses, context }: ShareServices,
  name: AppName,
  { keyId, secretBytes }: { readonly keyId: string; readonly secretBytes: (size: number) => Buffer },
): Promise<{ readonly token: string; readonly url: string }> {
  const app = await requireApp(context.db, name);
  const token = makeShareToken(secretBytes);
  if (!(await putAppShare(context, { appId: app.id, hash: hashKey(token), keyId }))) throw notFound("app", name.name);
  await note(context, app, "app.shared");
  return { token, url: `${urlOf(addresses, app)}?t=${token}` };
}

/** Ends it, if there is one. Throws a Refusal when there is no such app. */
export async function unshareApp({ context }: ShareServices, name: AppName): Promise<void> {
  const app = await requireApp(context.db, name);
  const hadOne = await removeAppShare(context.db, app.id);
  await note(context, app, hadOne ? "app.unshared" : null);
}

async function note(
  { db, clock }: Pick<Context, "db" | "clock">,
  { id: subjectId, tenantId }: AppRecord,
  type: "app.shared" | "app.unshared" | null,
): Promise<void> {
  await db.notify("shares", subjectId);
  if (type !== null) await noteEvents(db, tenantId, [{ subjectId, event: { type, data: {} } }], clock.now());
}
