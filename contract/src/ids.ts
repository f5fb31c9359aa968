/**
 * The prefixes of all identifiers. An id is `<prefix>-<32 hex>`, so that a log line shows what kind of thing
 * it names.
 */
export const ID_PREFIXES = {
  machine: "mach",
  point: "point",
  checkpoint: "ckpt",
  app: "app",
  instance: "inst",
  tenant: "tenant",
  plan: "plan",
  rate: "rate",
  pool: "pool",
  operation: "op",
  event: "ev",
  session: "sess",
  key: "key",
  volume: "vol",
  boot: "boot",
  posting: "post",
  webhook: "hook",
} as const;

export type IdKind = keyof typeof ID_PREFIXES;
