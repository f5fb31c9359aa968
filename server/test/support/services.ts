/**
 * Services of a second server beside the one under test, on the same database and data directory.
 */
import { type OpenMachineServices, openMachineServices } from "../../src/machines/services.ts";
import { Registry } from "../../src/registry/registry.ts";
import { openServices, type ServiceOptions } from "../../src/services.ts";
import type { TestServer } from "./server.ts";

export function openTestServices(
  { context, dataDirectory }: Pick<TestServer, "context" | "dataDirectory">,
  options: Partial<ServiceOptions> = {},
): Omit<OpenMachineServices, "start"> {
  const services = openServices(context, { plansUrl: "/", dataDirectory, ...options });
  const registry = new Registry({ context, backend: null, ceilingsOf: services.ceilingsOf });
  const machines = openMachineServices(services, registry, {});
  return {
    ...machines,
    async stop() {
      await services.stop();
      await machines.stop();
    },
  };
}
