/**
 * What programs read of a refusal, so that none reads its text.
 *
 * Always: a refusal's text has the field and the call in the same letters, so that a client can put its own
 * in their place. Each part is present where it applies.
 */
import { oneOf, type Static, Type } from "./schema.ts";

/** `path`: the API has no such path. A file or a directory is one in a machine. */
const RESOURCE_KINDS = [
  "apikey",
  "app",
  "authority",
  "checkpoint",
  "directory",
  "file",
  "image",
  "invoice",
  "machine",
  "node",
  "path",
  "plan",
  "pool",
  "tenant",
  "token",
  "webhook",
] as const;

/** The ceilings of a plan that refusals name. */
const PLAN_LIMITS = [
  "maxApps",
  "maxMachines",
  "maxConcurrentMachines",
  "maxTotalCpus",
  "maxTotalMemoryMb",
  "maxTotalDiskGb",
  "maxCpus",
  "maxMemoryMb",
  "maxDiskGb",
  "maxEgressGb",
] as const;
export type PlanLimit = (typeof PLAN_LIMITS)[number];

export const RefusalLimit = Type.Object({
  of: oneOf(
    ["value", "characters", "entries", ...PLAN_LIMITS],
    "of a field: its value, the length of its text, the number of its entries; or a ceiling of the plan",
  ),
  bound: oneOf(["<=", ">=", "<", ">"]),
  value: Type.Number(),
});
export type RefusalLimit = Static<typeof RefusalLimit>;

export const RefusalDetails = Type.Object({
  field: Type.Optional(
    Type.String({ description: "the field of the request that is at fault, as a path: `resources.cpus`" }),
  ),
  must: Type.Optional(
    Type.String({ description: "what its schema says of the field, to be read after its name: `be at most 64`" }),
  ),
  limit: Type.Optional(RefusalLimit),
  resource: Type.Optional(
    Type.Object(
      { kind: oneOf(RESOURCE_KINDS), id: Type.Optional(Type.String()) },
      { description: "what is missing, or of another kind" },
    ),
  ),
  call: Type.Optional(Type.String({ description: "a call that helps: `GET /v1/plans`" })),
});
export type RefusalDetails = Static<typeof RefusalDetails>;
