/**
 * Images on nodes.
 */
import type { Family } from "../family.ts";
import type { Services } from "../services.ts";
import { imagePullWorker } from "./pull.ts";
import { imageHandlers } from "./routes.ts";

export const imageFamily = (services: Pick<Services, "context" | "link" | "registries">) =>
  ({ name: "images", handlers: imageHandlers(services), workers: [imagePullWorker(services)] }) satisfies Family;
