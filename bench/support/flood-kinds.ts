/**
 * Ways in which a tenant may flood a server. Each prepares its data, and begins when the returned function is
 * called.
 */
import { EXEC_BODY_BYTES_MAX, EXEC_STDIN_BYTES_MAX, JSON_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import type { Calls, FloodName } from "./flood-calls.ts";

type Flood = (calls: Calls) => () => void;

/** Duration of a pull with the fake driver. */
const PULL_MS = 20;

/** A JSON list of small values that is nearly as long as permitted. */
function manyValues(name: string, bytesMax: number): Buffer {
  const count = Math.floor((bytesMax - 100) / 3);
  return Buffer.from(`{"${name}":[${"{},".repeat(count)}{}]}`);
}

export const FLOODS: Readonly<Record<FloodName, Flood>> = {
  bodies: (calls) => {
    const path = `/v1/machines/${calls.order.machineId}/exec`;
    const valid = Buffer.from(`{"command":["true"],"stdin":"${"x".repeat(EXEC_STDIN_BYTES_MAX)}"}`);
    const hostile = manyValues("command", EXEC_BODY_BYTES_MAX);
    const small = manyValues("labels", JSON_BODY_BYTES_MAX);
    return () => {
      calls.repeat(2, () => ({ method: "POST", path, body: valid }));
      calls.repeat(2, () => ({ method: "POST", path, body: hostile }));
      calls.repeat(4, () => ({ method: "POST", path: "/v1/machines", body: small }));
    };
  },
  streams: (calls) => {
    const path = `/v1/machines/${calls.order.machineId}/exec/stream`;
    const body = Buffer.from('{"command":["yes"]}');
    return () => {
      calls.repeat(48, () => ({ method: "POST", path, body }));
      calls.repeat(48, () => ({ method: "POST", path, body, isUnread: true }));
    };
  },
  images: (calls) => {
    let made = 0;
    const reference = (): string => `flood/slow-${PULL_MS}:${process.pid}-${(made += 1)}`;
    return () => {
      calls.repeat(16, () => ({
        method: "POST",
        path: "/v1/images/pull",
        body: Buffer.from(JSON.stringify({ reference: reference() })),
      }));
      calls.repeat(4, () => ({ path: "/v1/images" }));
    };
  },
};
