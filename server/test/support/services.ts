/**
 * Services of a second server beside the one under test, on the same database and data directory.
 */
import { type OpenMachineServices, openMachineServices } from "../../src/machines/services.ts";
import { openServices } from "../../src/services.ts";
import type { TestServer } from "./server.ts";

export function openTestServices({
  context,
  dataDirectory,
}: Pick<TestServer, "context" | "dataDirectory">): Omit<OpenMachineServices, "start"> {
  const services = openServices(context, { plansUrl: "/", dataDirectory });
  const machines = openMachineServices(services, {});
  return {
    ...machines,
    async stop() {
      await services.stop();
      await machines.stop();
    },
  };
}
