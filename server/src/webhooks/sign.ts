/**
 * Secrets and signatures of webhooks, as Standard Webhooks defines them. Pure.
 *
 * Always: a signature is over id, timestamp and body, so that none of them can be exchanged.
 */
import { createHmac } from "node:crypto";

const SECRET_PREFIX = "whsec_";
const SECRET_BYTES = 32;

/** `whsec_` and base64. */
export const makeWebhookSecret = (randomBytes: (size: number) => Buffer): string =>
  SECRET_PREFIX + randomBytes(SECRET_BYTES).toString("base64");

export interface Signed {
  readonly id: string;
  /** Epoch seconds of the attempt. */
  readonly timestamp: number;
  readonly body: string;
}

/** The value of `webhook-signature`: one signature for each secret, separated by spaces. */
export function signatureOf({ id, timestamp, body }: Signed, secrets: readonly string[]): string {
  return secrets
    .map((secret) => {
      const key = Buffer.from(secret.slice(SECRET_PREFIX.length), "base64");
      return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64")}`;
    })
    .join(" ");
}
