/**
 * Certificates of a fleet, read back by OpenSSL.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync, randomBytes, X509Certificate } from "node:crypto";
import { test } from "node:test";
import { authorityOf, issueCertificate, makeAuthority } from "./certificates.ts";

const NOW = Date.UTC(2026, 6, 22, 20, 1, 41);
const HOUR_MS = 3_600_000;
const { publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });

test("a certificate names its node, is signed by its authority, and is valid for a day from an hour before", () => {
  const authority = makeAuthority(randomBytes, NOW);
  const issued = issueCertificate(
    authority,
    { identity: "urn:flotilla:node:rack-2.host_7", publicKey },
    { randomBytes, now: NOW },
  );
  const certificate = new X509Certificate(issued.certificate);
  const signer = new X509Certificate(authority.certificate);
  assert.equal(certificate.subjectAltName, "URI:urn:flotilla:node:rack-2.host_7");
  assert.ok(certificate.verify(signer.publicKey) && certificate.checkIssued(signer));
  assert.deepEqual(
    certificate.publicKey.export({ type: "spki", format: "der" }),
    publicKey.export({ type: "spki", format: "der" }),
  );
  assert.deepEqual([signer.ca, certificate.ca], [true, false]);
  assert.equal(Math.floor(Date.parse(certificate.validFrom) / 1000), Math.floor((NOW - HOUR_MS) / 1000));
  assert.equal(Math.floor(Date.parse(certificate.validTo) / 1000), Math.floor((NOW + 24 * HOUR_MS) / 1000));
  assert.equal(certificate.issuer, authority.subject);
});

test("serial numbers are positive whatever the random bytes are, and authorities have different names", () => {
  for (const byte of [0x00, 0x7f, 0x80, 0xff]) {
    const authority = makeAuthority((size) => Buffer.alloc(size, byte), NOW);
    assert.match(new X509Certificate(authority.certificate).serialNumber, /^[4-7]/);
  }
  assert.notEqual(makeAuthority(randomBytes, NOW).subject, makeAuthority(randomBytes, NOW).subject);
});

test("an authority that is stored and read again is the same, and outlives no certificate that it signs", () => {
  const made = makeAuthority(randomBytes, NOW);
  const key = made.key.export({ type: "pkcs8", format: "pem" }).toString();
  const read = authorityOf(made.certificate, key, NOW);
  assert.equal(read.fingerprint, made.fingerprint);
  const late = read.expiresAt - HOUR_MS;
  const { expiresAt } = issueCertificate(
    read,
    { identity: "urn:flotilla:server", publicKey },
    { randomBytes, now: late },
  );
  assert.equal(expiresAt, read.expiresAt);
});
