/**
 * The part of DNS messages (RFC 1035) needed to answer machines: the question of a query, and our answers.
 * Pure.
 *
 * Always: queries come from guests, which are hostile. A query is answered only if it is one complete
 * question in at most QUERY_BYTES_MAX, without compression pointers.
 */

export const QUERY_BYTES_MAX = 1232;
export const TYPE_A = 1;
const CLASS_IN = 1;
const HEADER_BYTES = 12;
const LABEL_BYTES_MAX = 63;
const NAME_BYTES_MAX = 255;
const ADDRESSES_MAX = 24;

export const RESPONSE_CODES = { ok: 0, failed: 2, noSuchName: 3, refused: 5 } as const;

export interface Question {
  readonly id: number;
  /** With dots, in the notation of the query. */
  readonly name: string;
  readonly type: number;
  /** Where the question ends. */
  readonly end: number;
}

/** null for a query that cannot be answered. */
export function questionOf(query: Buffer): Question | null {
  if (query.byteLength < HEADER_BYTES || query.byteLength > QUERY_BYTES_MAX) return null;
  const flags = query.readUInt16BE(2);
  const isStandardQuery = (flags & 0xf800) === 0;
  if (!isStandardQuery || query.readUInt16BE(4) !== 1) return null;
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (;;) {
    const length = query[at];
    if (length === undefined || length > LABEL_BYTES_MAX || at - HEADER_BYTES > NAME_BYTES_MAX) return null;
    at += 1;
    if (length === 0) break;
    if (at + length > query.byteLength) return null;
    labels.push(query.toString("latin1", at, at + length));
    at += length;
  }
  if (at + 4 > query.byteLength || query.readUInt16BE(at + 2) !== CLASS_IN) return null;
  return { id: query.readUInt16BE(0), name: labels.join("."), type: query.readUInt16BE(at), end: at + 4 };
}

/** The answer to `query`: its question, repeated, and these addresses. */
export function answerTo(
  query: Buffer,
  question: Question,
  answer: { readonly code: number; readonly addresses?: readonly string[]; readonly ttlSeconds?: number },
): Buffer {
  const { code, addresses = [], ttlSeconds = 0 } = answer;
  const included = addresses.slice(0, ADDRESSES_MAX);
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(question.id, 0);
  const isRecursionDesired = query.readUInt16BE(2) & 0x0100;
  // A response, recursion available.
  header.writeUInt16BE(0x8080 | isRecursionDesired | code, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(included.length, 6);
  const records = included.map((address) => {
    const record = Buffer.alloc(16);
    record.writeUInt16BE(0xc000 | HEADER_BYTES, 0); // the question's name
    record.writeUInt16BE(TYPE_A, 2);
    record.writeUInt16BE(CLASS_IN, 4);
    record.writeUInt32BE(ttlSeconds, 6);
    record.writeUInt16BE(4, 10);
    for (const [index, part] of address.split(".").entries()) record.writeUInt8(Number(part), 12 + index);
    return record;
  });
  return Buffer.concat([header, query.subarray(HEADER_BYTES, question.end), ...records]);
}
