/**
 * Sends the disks of machines that run on their new node before their disk is there (moves/following.ts).
 *
 * Writes following_disks. A disk is sent by one server at a time, which keeps a lease; the work continues after the activation.
 */
import type { MachineServices } from "../machines/services.ts";
import { FOLLOWING_LEASE_MS, sendFollowing } from "../moves/following.ts";
import { claimFollowing } from "../moves/following-store.ts";
import type { Reconciler } from "./driver.ts";

/** By one server. Each takes a part of the link of two nodes; one of which nothing arrives, because its node is away, takes none. */
const SENT_MAX = 8;
/** With those of which nothing arrives: each is tried again twice a second. */
const UNDER_WAY_MAX = 256;

export function followingReconciler(services: MachineServices): Reconciler {
  const { context } = services;
  const underWay = new Set<string>();
  const stuck = new Set<string>();
  return {
    name: "following",
    purpose: "sends disks of machines that were moved before their disk",
    periodMs: 2_000,
    wakeOn: ["disks"],
    async activate(signal) {
      const sentBy = context.randomBytes(16).toString("hex");
      const limit = Math.min(SENT_MAX + stuck.size, UNDER_WAY_MAX) - underWay.size;
      const claimed = limit > 0 ? await claimFollowing(context, { limit, leaseMs: FOLLOWING_LEASE_MS, sentBy }) : [];
      for (const disk of claimed) {
        const key = `${disk.machineId} ${sentBy}`;
        underWay.add(key);
        const onTrouble = (isStuck: boolean): void => void (isStuck ? stuck.add(key) : stuck.delete(key));
        services.inBackground(`the disk of ${disk.machineId}`, () =>
          sendFollowing(services, disk, { stopping: signal, onTrouble }).finally(() => {
            underWay.delete(key);
            stuck.delete(key);
          }),
        );
      }
      return { errors: [], counts: { claimed: claimed.length } };
    },
  };
}
