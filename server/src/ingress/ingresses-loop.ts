/**
 * Signs the certificates of ingress processes that listen for nodes, when they have none and when half of
 * their time has passed.
 *
 * Writes ingress_listeners.certificates, through link/trust.ts. If two servers sign for the same key at the
 * same time, the later write wins, and both certificates are valid.
 */
import type { FleetTrust } from "../link/trust.ts";
import type { Reconciler } from "../family.ts";

export function ingressReconciler(trust: Pick<FleetTrust, "certifyIngresses">): Reconciler {
  return {
    name: "ingresses",
    purpose: "signs the certificates with which ingresses reach nodes of other hosts",
    periodMs: 5_000,
    wakeOn: ["fleet"],
    async activate() {
      return { errors: [], counts: { certified: await trust.certifyIngresses() } };
    },
  };
}
