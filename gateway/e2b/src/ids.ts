/**
 * Names of sandboxes and keys as E2B's clients know them. Pure.
 *
 * A sandbox id is that of its machine in other letters, so that it fits into a host name. A key has two
 * spellings of the same 32 bytes: some clients refuse one that is not `e2b_` and hexadecimal digits.
 */
const MACHINE_ID = /^mach-([0-9a-f]{32})$/;
const SANDBOX_ID = /^i([0-9a-f]{32})(?:-.*)?$/;
const E2B_KEY = /^e2b_([0-9a-f]{64})$/;

export const sandboxOf = (machineId: string): string => `i${MACHINE_ID.exec(machineId)?.[1] ?? machineId}`;

/** Without what may follow it; null: it is none. */
export function sandboxIdOf(text: string): string | null {
  const found = SANDBOX_ID.exec(text);
  return found === null ? null : `i${found[1]}`;
}

export const machineOf = (sandboxId: string): string => `mach-${sandboxId.slice(1)}`;

/** The spelling that the API knows. Other text is left as it is, and refused there. */
export function keyOf(text: string): string {
  const hex = E2B_KEY.exec(text)?.[1];
  return hex === undefined ? text : `smk_${Buffer.from(hex, "hex").toString("base64url")}`;
}
