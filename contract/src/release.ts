/**
 * The version of this release, of all programs.
 */
export const RELEASE = "0.1.0";
