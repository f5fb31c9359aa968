/**
 * What people count in, for amounts in milliseconds, and of egress in bytes.
 */
export const UNITS = {
  uptime: { per: 3_600_000, name: "machine hours" },
  cpu: { per: 3_600_000, name: "CPU hours" },
  memory: { per: 3_600_000 * 1024, name: "memory GB hours" },
  disk: { per: 3_600_000, name: "disk GB hours" },
  egress: { per: 2 ** 30, name: "egress GB" },
  registry: { per: 3_600_000 * 1024, name: "registry GB hours" },
} as const;
