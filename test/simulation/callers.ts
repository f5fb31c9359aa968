/**
 * The tenants whose machines are simulated, as the pipeline of http/ hands their calls over.
 */
import type { Caller } from "../../server/src/auth/caller.ts";

const ID = "00000000000000000000000000000051";
const OTHER_ID = "00000000000000000000000000000052";

const caller = { kind: "key", expiresAt: null } as const;

/** A tenant that also operates the nodes. */
export const OPERATOR = {
  ...caller,
  keyId: `key-${ID}`,
  tenantId: `tenant-${ID}`,
  scopes: ["admin"],
  isAdmin: true,
} as const satisfies Caller;

/** A tenant that knows the ids of the first one's machines. */
export const OTHER = {
  ...caller,
  keyId: `key-${OTHER_ID}`,
  tenantId: `tenant-${OTHER_ID}`,
  scopes: ["machine:read", "machine:create", "machine:delete", "machine:exec", "machine:files"],
  isAdmin: false,
} as const satisfies Caller;
