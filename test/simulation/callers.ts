/**
 * The tenant whose machines are simulated.
 */
export const TENANT = "tenant-00000000000000000000000000000051";
