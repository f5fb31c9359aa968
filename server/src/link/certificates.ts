/**
 * Issues the certificates of a fleet: its authority's, the servers' and the nodes'. All keys are ECDSA P-256.
 *
 * It only writes X.509 (DER), in one fixed form; parsing and verifying is OpenSSL's. A library would be
 * twelve packages for these lines (docs/decisions/0038-joining.md).
 *
 * Always:
 * - A certificate says in its subject alternative name what it is for: `urn:flotilla:server`, or a node with
 *   its id.
 * - Only an authority's certificate may sign, and what it signs may not.
 */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
  X509Certificate,
} from "node:crypto";

const HOUR_MS = 3_600_000;
const AUTHORITY_MS = 10 * 365 * 24 * HOUR_MS;
/**
 * An authority is valid from this long before it was made: the clock of the server that made it may have been
 * ahead.
 */
const AUTHORITY_BEFORE_MS = 365 * 24 * HOUR_MS;
/** How long a certificate of a node or a server is valid. Renewed when half of it has passed. */
const CERTIFICATE_MS = 24 * HOUR_MS;
/** Clocks of hosts differ: a certificate is valid from this long before it was issued. */
const CLOCK_SKEW_MS = HOUR_MS;

/**
 * Whether a certificate of a node or a server is to be replaced: half of its time has passed, or it is not
 * valid yet because the clock was ahead when it was issued. Times are epoch milliseconds.
 */
export function isRenewalDue(expiresAt: number, now: number): boolean {
  const leftMs = expiresAt - now;
  return leftMs < CERTIFICATE_MS / 2 || leftMs > CERTIFICATE_MS + CLOCK_SKEW_MS;
}

export interface Authority {
  /** SHA-256 of the certificate in hex. */
  readonly fingerprint: string;
  /** PEM. */
  readonly certificate: string;
  readonly key: KeyObject;
  /** As OpenSSL shows it; unique. */
  readonly subject: string;
  /** Epoch milliseconds. */
  readonly createdAt: number;
  readonly expiresAt: number;
}

export interface Issued {
  /** PEM. */
  readonly certificate: string;
  readonly expiresAt: number;
}

type RandomBytes = (size: number) => Buffer;

/** Makes a new fleet authority. */
export function makeAuthority(randomBytes: RandomBytes, now: number): Authority {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const name = `flotilla fleet ${randomBytes(8).toString("hex")}`;
  const expiresAt = now + AUTHORITY_MS;
  const certificate = issue({
    serial: randomBytes(16),
    issuer: name,
    subject: name,
    publicKey,
    signer: privateKey,
    from: now - AUTHORITY_BEFORE_MS,
    until: expiresAt,
    extensions: [
      extension(SUBJECT_KEY_ID, false, tagged(0x04, keyId(publicKey))),
      extension(BASIC_CONSTRAINTS, true, sequence(BOOLEAN_TRUE, integer(Buffer.from([0])))),
      // keyCertSign, cRLSign
      extension(KEY_USAGE, true, bits(1, 0x06)),
    ],
  });
  return authorityOf(certificate, privateKey, now);
}

/** An authority from its parts. Throws when the certificate cannot be read. */
export function authorityOf(certificate: string, key: KeyObject | string, createdAt: number): Authority {
  const parsed = new X509Certificate(certificate);
  return {
    fingerprint: createHash("sha256").update(parsed.raw).digest("hex"),
    certificate,
    key: typeof key === "string" ? createPrivateKey(key) : key,
    subject: parsed.subject,
    createdAt,
    expiresAt: Date.parse(parsed.validTo),
  };
}

/** Issues a certificate over a public key. `identity`: a URI, such as `urn:flotilla:server`. */
export function issueCertificate(
  authority: Authority,
  { identity, publicKey }: { readonly identity: string; readonly publicKey: KeyObject },
  { randomBytes, now }: { readonly randomBytes: RandomBytes; readonly now: number },
): Issued {
  const expiresAt = Math.min(now + CERTIFICATE_MS, authority.expiresAt);
  const certificate = issue({
    serial: randomBytes(16),
    issuer: authority.subject.replace(/^CN=/, ""),
    subject: "flotilla",
    publicKey,
    signer: authority.key,
    from: now - CLOCK_SKEW_MS,
    until: expiresAt,
    extensions: [
      extension(AUTHORITY_KEY_ID, false, sequence(tagged(0x80, keyId(createPublicKey(authority.key))))),
      extension(BASIC_CONSTRAINTS, true, sequence()),
      // digitalSignature
      extension(KEY_USAGE, true, bits(7, 0x80)),
      extension(EXTENDED_KEY_USAGE, false, sequence(oid(SERVER_AUTH), oid(CLIENT_AUTH))),
      extension(SUBJECT_ALT_NAME, true, sequence(tagged(0x86, Buffer.from(identity, "ascii")))),
    ],
  });
  return { certificate, expiresAt };
}

interface Form {
  readonly serial: Buffer;
  readonly issuer: string;
  readonly subject: string;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  readonly from: number;
  readonly until: number;
  readonly extensions: readonly Buffer[];
}

function issue({ serial, issuer, subject, publicKey, signer, from, until, extensions }: Form): string {
  const algorithm = sequence(oid(ECDSA_WITH_SHA256));
  const body = sequence(
    tagged(0xa0, integer(Buffer.from([2]))),
    integer(positive(serial)),
    algorithm,
    nameOf(issuer),
    sequence(time(from), time(until)),
    nameOf(subject),
    publicKey.export({ type: "spki", format: "der" }),
    tagged(0xa3, sequence(...extensions)),
  );
  const signature = sign("sha256", body, signer);
  const der = sequence(body, algorithm, bitString(0, signature));
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

const ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2";
const COMMON_NAME = "2.5.4.3";
const BASIC_CONSTRAINTS = "2.5.29.19";
const KEY_USAGE = "2.5.29.15";
const SUBJECT_KEY_ID = "2.5.29.14";
const AUTHORITY_KEY_ID = "2.5.29.35";
const EXTENDED_KEY_USAGE = "2.5.29.37";
const SUBJECT_ALT_NAME = "2.5.29.17";
const SERVER_AUTH = "1.3.6.1.5.5.7.3.1";
const CLIENT_AUTH = "1.3.6.1.5.5.7.3.2";

function tagged(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const { byteLength: size } = content;
  const length = size < 0x80 ? [size] : size < 0x100 ? [0x81, size] : [0x82, size >> 8, size & 0xff];
  return Buffer.concat([Buffer.from([tag, ...length]), content]);
}

const sequence = (...parts: readonly Uint8Array[]): Buffer => tagged(0x30, ...parts);
const integer = (bytes: Uint8Array): Buffer => tagged(0x02, bytes);
const bitString = (unused: number, bytes: Uint8Array): Buffer => tagged(0x03, Buffer.from([unused]), bytes);
const bits = (unused: number, byte: number): Buffer => bitString(unused, Buffer.from([byte]));
const BOOLEAN_TRUE = tagged(0x01, Buffer.from([0xff]));

/** A serial number: not negative, and without a leading zero byte. */
const positive = (bytes: Buffer): Buffer => Buffer.from([((bytes[0] ?? 0) & 0x7f) | 0x40, ...bytes.subarray(1)]);

function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes = [first * 40 + second];
  for (const arc of rest) {
    const septets = [arc & 0x7f];
    for (let left = arc >> 7; left > 0; left >>= 7) septets.unshift((left & 0x7f) | 0x80);
    bytes.push(...septets);
  }
  return tagged(0x06, Buffer.from(bytes));
}

const nameOf = (commonName: string): Buffer =>
  sequence(tagged(0x31, sequence(oid(COMMON_NAME), tagged(0x0c, Buffer.from(commonName)))));

/** Up to 2049 as UTCTime, then as GeneralizedTime, as RFC 5280 asks for. */
function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/[-:T]/g, "").replace(/\..*$/, "Z");
  return new Date(ms).getUTCFullYear() < 2050
    ? tagged(0x17, Buffer.from(digits.slice(2)))
    : tagged(0x18, Buffer.from(digits));
}

/** Names a key within certificates. */
const keyId = (key: KeyObject): Buffer =>
  createHash("sha256")
    .update(key.export({ type: "spki", format: "der" }))
    .digest()
    .subarray(0, 20);

const extension = (id: string, isCritical: boolean, value: Buffer): Buffer =>
  sequence(oid(id), ...(isCritical ? [BOOLEAN_TRUE] : []), tagged(0x04, value));
