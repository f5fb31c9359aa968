/**
 * The ways to the ports of machines: connect tokens and share links, and the leases of ingresses. Requests
 * for ports: serve.ts.
 */
import type { Family } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import type { IngressServices } from "./admit.ts";
import { purgeIngressLeases } from "./apps/route-store.ts";
import { connectHandlers } from "./connect/routes.ts";
import { purgeConnectTokens } from "./connect/store.ts";
import { ingressReconciler } from "./ingresses-loop.ts";
import { shareHandlers } from "./share/routes.ts";

export const ingressFamily = (
  services: Pick<MachineServices, "activity" | "addresses" | "context" | "fleet"> &
    Pick<IngressServices, "access" | "apps" | "idle">,
) =>
  ({
    name: "ingress",
    handlers: { ...connectHandlers(services.context), ...shareHandlers(services) },
    loops: [ingressReconciler(services.fleet.trust)],
    // When they have expired.
    purges: { connectTokens: purgeConnectTokens, ingressLeases: purgeIngressLeases },
    async stop() {
      services.idle.close();
      services.access.close();
      await services.apps.stop();
    },
  }) satisfies Family;
