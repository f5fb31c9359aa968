/**
 * Writes tar archives member by member, so that tests can make layers that ordinary tools do not write: names
 * with `..`, links that lead out, chosen owners and capabilities, whiteouts.
 */

export interface TarMember {
  readonly name: string;
  readonly type?: keyof typeof TYPES;
  readonly content?: string | Buffer;
  /** Permission bits; 0644, and 0755 for directories, when absent. */
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  /** Target of links. */
  readonly target?: string;
  /** Numbers of devices. */
  readonly device?: readonly [major: number, minor: number];
  readonly xattrs?: Readonly<Record<string, Buffer>>;
  /** The size of a sparse file, whose content is only its beginning. */
  readonly sparseBytes?: number;
}

const TYPES = {
  file: "0",
  hardlink: "1",
  symlink: "2",
  character: "3",
  block: "4",
  directory: "5",
  fifo: "6",
} as const;
const BLOCK_BYTES = 512;
/** A fixed instant, so that equal members give equal archives. */
const MODIFIED_SECONDS = 1_700_000_000;

/** A whole archive with its end. */
export function makeTar(members: readonly TarMember[]): Buffer {
  return Buffer.concat([...members.flatMap(memberBlocks), Buffer.alloc(2 * BLOCK_BYTES)]);
}

function memberBlocks(member: TarMember): readonly Buffer[] {
  const content = Buffer.from(member.content ?? "");
  const records = Object.entries(member.xattrs ?? {}).map(([key, value]) => paxRecord(`SCHILY.xattr.${key}`, value));
  if (Buffer.byteLength(member.name) > 100) records.push(paxRecord("path", Buffer.from(member.name)));
  if (Buffer.byteLength(member.target ?? "") > 100)
    records.push(paxRecord("linkpath", Buffer.from(member.target ?? "")));
  if (member.sparseBytes !== undefined)
    for (const [key, value] of Object.entries({
      size: String(member.sparseBytes),
      numblocks: "1",
      map: `0,${content.length}`,
    }))
      records.push(paxRecord(`GNU.sparse.${key}`, Buffer.from(value)));
  const extended = Buffer.concat(records);
  const pax = extended.length === 0 ? [] : [header({ name: "pax" }, "x", extended.length), ...padded(extended)];
  return [...pax, header(member, TYPES[member.type ?? "file"], content.length), ...padded(content)];
}

/** `<length> <key>=<value>\n`, where the length counts itself. */
function paxRecord(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from("\n")]);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

function header(member: TarMember, type: string, bytes: number): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, offset: number, length: number): void => {
    block.write(value.toString(8).padStart(length - 1, "0"), offset, "latin1");
  };
  block.write(member.name.slice(0, 100), 0, "utf8");
  octal(member.mode ?? (member.type === "directory" ? 0o755 : 0o644), 100, 8);
  octal(member.uid ?? 0, 108, 8);
  octal(member.gid ?? 0, 116, 8);
  octal(bytes, 124, 12);
  octal(MODIFIED_SECONDS, 136, 12);
  block.write(" ".repeat(8), 148, "latin1");
  block.write(type, 156, "latin1");
  block.write((member.target ?? "").slice(0, 100), 157, "utf8");
  block.write("ustar\u000000", 257, "latin1");
  octal(member.device?.[0] ?? 0, 329, 8);
  octal(member.device?.[1] ?? 0, 337, 8);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

function padded(content: Buffer): readonly Buffer[] {
  return [content, Buffer.alloc((BLOCK_BYTES - (content.length % BLOCK_BYTES)) % BLOCK_BYTES)];
}
