/**
 * Units of what machines send. A GB is 2^30 bytes, as of memory and disks.
 */
export const BYTES_PER_GB = 2 ** 30;

/** `1.500 GB`; rounded down, so that a ceiling is not said to be reached before it is. */
export const renderGb = (bytes: number): string =>
  `${(Math.floor((bytes * 1000) / BYTES_PER_GB) / 1000).toFixed(3)} GB`;
