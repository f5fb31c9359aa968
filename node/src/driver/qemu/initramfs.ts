/**
 * Writes the guest's initramfs: the agent as /init, the kernel modules it loads, and their list.
 *
 * Pure. The format is the kernel's `newc` cpio (a header of hexadecimal fields, name, data, each padded to
 * four bytes), which the kernel unpacks itself. It is not compressed, because under emulation decompressing
 * costs more than reading.
 */

export interface ArchiveEntry {
  /** Without the leading slash; parent directories must precede. */
  readonly name: string;
  readonly mode: number;
  /** Absent for a directory. */
  readonly data?: Uint8Array;
}

export const DIRECTORY_MODE = 0o040755;
export const PROGRAM_MODE = 0o100755;
export const FILE_MODE = 0o100644;

export function writeCpio(entries: readonly ArchiveEntry[]): Buffer {
  const parts: Buffer[] = [];
  entries.forEach((entry, index) => parts.push(...cpioEntry(entry, index + 1)));
  parts.push(...cpioEntry({ name: "TRAILER!!!", mode: 0 }, 0));
  return Buffer.concat(parts);
}

function cpioEntry(entry: ArchiveEntry, inode: number): Buffer[] {
  const name = Buffer.from(`${entry.name}\0`);
  const data = entry.data ?? new Uint8Array(0);
  // inode, mode, uid, gid, links, mtime, size, four device numbers, length of the name, checksum (unused by
  // newc)
  const fields = [inode, entry.mode, 0, 0, 1, 0, data.length, 0, 0, 0, 0, name.length, 0];
  const header = `070701${fields.map((field) => field.toString(16).padStart(8, "0")).join("")}`;
  return [padded(Buffer.concat([Buffer.from(header), name])), padded(Buffer.from(data))];
}

function padded(bytes: Buffer): Buffer {
  const rest = bytes.length % 4;
  return rest === 0 ? bytes : Buffer.concat([bytes, Buffer.alloc(4 - rest)]);
}

/** The names of the modules that a kernel module depends on, from `depends=` in its .modinfo. */
export function moduleDependencies(module: Buffer): readonly string[] {
  const key = "\0depends=";
  const start = module.indexOf(key);
  if (start === -1) return [];
  const end = module.indexOf(0, start + key.length);
  return module
    .toString("latin1", start + key.length, end)
    .split(",")
    .filter((name) => name !== "");
}

/**
 * Orders modules so that each follows its dependencies, which are added. Throws when one is missing or they
 * are circular.
 */
export function inLoadOrder(
  wanted: readonly string[],
  dependenciesOf: (name: string) => readonly string[],
): readonly string[] {
  const ordered: string[] = [];
  const visit = (name: string, from: readonly string[]): void => {
    if (from.includes(name)) throw new Error(`circular dependency of kernel module ${name}`);
    if (ordered.includes(name)) return;
    for (const needed of dependenciesOf(name)) visit(needed, [...from, name]);
    ordered.push(name);
  };
  for (const name of wanted) visit(name, []);
  return ordered;
}
