/**
 * What people count in, for amounts in milliseconds.
 */
export const UNITS = {
  uptime: { perHour: 3_600_000, name: "machine hours" },
  cpu: { perHour: 3_600_000, name: "CPU hours" },
  memory: { perHour: 3_600_000 * 1024, name: "memory GB hours" },
  disk: { perHour: 3_600_000, name: "disk GB hours" },
} as const;
