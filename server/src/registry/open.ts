/**
 * Chooses where packages are stored, from the settings, and opens it.
 */
import type { ServerSettings } from "../config.ts";
import type { Context } from "../context.ts";
import type { Backend } from "./backend.ts";
import { EmbeddedRegistry } from "./embedded.ts";
import { ExternalRegistry } from "./external.ts";
import { Registry, type RegistryOptions } from "./registry.ts";

export interface OpenRegistryOptions
  extends Pick<ServerSettings, "databaseUrl" | "dataDirectory" | "registry" | "registryCredentials"> {}

/** Nothing is awaited: the registry serves when its backend does. */
export function openRegistry(
  services: Pick<RegistryOptions, "ceilingsOf"> & { readonly context: Context },
  options: OpenRegistryOptions,
): Registry {
  const { context, ceilingsOf } = services;
  return new Registry({ context, ceilingsOf, backend: backendOf(context, options) });
}

function backendOf(
  { clock, log, randomBytes }: Context,
  { databaseUrl, dataDirectory, registry, registryCredentials }: OpenRegistryOptions,
): Backend | null {
  const where = registry ?? (databaseUrl === null ? "embedded" : "none");
  if (where === "none") return null;
  if (where !== "embedded") return new ExternalRegistry({ base: where, credentials: registryCredentials, clock, log });
  return new EmbeddedRegistry({ dataDirectory, clock, log, randomBytes });
}
