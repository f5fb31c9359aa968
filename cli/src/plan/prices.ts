/**
 * The price options that verbs of `flotilla plan` share.
 */
import type { Command } from "commander";
import { micros } from "../arguments.ts";

export const withPrices = (command: Command): Command =>
  command
    .option("--cpu-hour <amount>", "price of a virtual processor for an hour, such as 0.02", micros)
    .option("--memory-gb-hour <amount>", "price of a GB of memory for an hour", micros)
    .option("--egress-gb <amount>", "price of a GB that machines send", micros)
    .option("--registry-gb-hour <amount>", "price of a GB in the registry for an hour", micros);

/** Prices in integer micros. */
export interface Prices {
  readonly cpuHour?: number;
  readonly memoryGbHour?: number;
  readonly egressGb?: number;
  readonly registryGbHour?: number;
}

/** As the API names them. */
export const pricesOf = ({ cpuHour, memoryGbHour, egressGb, registryGbHour }: Prices) => ({
  ...(cpuHour === undefined ? {} : { rateCpuHourMicros: cpuHour }),
  ...(memoryGbHour === undefined ? {} : { rateMemoryGbHourMicros: memoryGbHour }),
  ...(egressGb === undefined ? {} : { rateEgressGbMicros: egressGb }),
  ...(registryGbHour === undefined ? {} : { rateRegistryGbHourMicros: registryGbHour }),
});
