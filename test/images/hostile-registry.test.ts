/**
 * Registries that try to make the node send requests to other servers: by address, by redirect, by token
 * server and by DNS. The `internal` service represents everything on the node's network; it must never
 * receive a request.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { ImageRefused } from "@flotilla/node/images/image-refused";
import type { ImagesOptions } from "@flotilla/node/images/store";
import { type Behaviour, type FaultyProxy, isLayer, startFaultyProxy } from "../support/faulty-proxy.ts";
import { busyboxPlatforms, pushImage } from "../support/images.ts";
import { startRegistry, type TestRegistry } from "../support/registry.ts";
import { openTestImages, skipReason } from "./fixture.ts";

const SECRET = JSON.stringify({ token: "SECRET-OF-ANOTHER" });

let registry: TestRegistry;
/** A tenant's registry: in front of a real one, and allowed. */
let front: FaultyProxy;
let internal: FaultyProxy;

before(async () => {
  registry = await startRegistry();
  await pushImage(registry, "app:latest", await busyboxPlatforms());
  front = await startFaultyProxy(registry.url);
  internal = await startFaultyProxy(registry.url);
});
after(async () => {
  for (const server of [front, internal, registry]) await server[Symbol.asyncDispose]();
});
beforeEach(() => {
  front.behave = () => ({ kind: "pass" });
  internal.behave = () => ({ kind: "body", body: SECRET });
});

/** The error that a tenant gets for a pull that must fail without a request to the internal service. */
async function refusal(reference: string, change: Partial<ImagesOptions> = {}): Promise<string> {
  await using store = await openTestImages({ allowedRegistries: [front.host], ...change });
  const earlier = internal.seen.length;
  let told = "";
  await assert.rejects(store.images.ensure(reference, { arch: null, tenantId: null }), (error: Error) => {
    told = error instanceof ImageRefused ? `${error.code}: ${error.message}` : error.message;
    return true;
  });
  assert.deepEqual(internal.seen.slice(earlier), []);
  return told.replace(/127\.0\.0\.1:\d+/g, "HOST");
}

const redirect = (location: string, status = 302): Behaviour => ({ kind: "status", status, headers: { location } });
const UNAVAILABLE = "image HOST/app:latest cannot be pulled: registry HOST cannot be reached, or does not answer as a";

describe("a registry that is not allowed", { skip: skipReason }, () => {
  it("is refused with the name of the setting, however its address is written", async () => {
    const port = internal.host.split(":")[1] ?? "";
    for (const host of ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "017700000001", "0.0.0.0", "127.1", "[::1]"])
      assert.match(
        await refusal(`${host}:${port}/app`),
        /^image_not_allowed: .*not allowed here: .*FLOTILLA_ALLOWED_REGISTRIES/,
        host,
      );
  });

  it("is refused by its address where any registry is allowed, with the same text as one that is down", async () => {
    const port = internal.host.split(":")[1] ?? "";
    const allowedRegistries = ["*"];
    const told = new Set<string>();
    for (const host of ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0", "[::1]", "[::ffff:7f00:1]"])
      told.add((await refusal(`${host}:${port}/app`, { allowedRegistries })).replaceAll(`${host}:${port}`, "HOST"));
    told.add((await refusal(`127.0.0.1:1/app`, { allowedRegistries })).replaceAll("127.0.0.1:1", "HOST"));
    assert.equal(told.size, 1, [...told].join("\n"));
    assert.ok([...told][0]?.startsWith(UNAVAILABLE));
  });

  it("is refused when its name resolves to a private address", async () => {
    const resolve = async () => [{ address: "127.0.0.1", family: 4 }];
    await refusal(`rebind.example:${internal.host.split(":")[1]}/app`, { allowedRegistries: ["*"], resolve });
    await refusal(`ghcr.io/team/app`, { allowedRegistries: null, resolve });
  });
});

describe("a redirect", { skip: skipReason }, () => {
  it("of a manifest to a service inside is not followed", async () => {
    for (const status of [301, 302, 303, 307, 308]) {
      front.behave = () => redirect(`${internal.url}/admin/delete?everything=1`, status);
      assert.match(await refusal(`${front.host}/app`), new RegExp(`^${UNAVAILABLE}`));
    }
  });

  it("of a layer to a service inside is not followed", async () => {
    front.behave = (request) => (isLayer(request) ? redirect(`${internal.url}${request.path}`) : { kind: "pass" });
    assert.match(await refusal(`${front.host}/app`), new RegExp(`^${UNAVAILABLE}`));
  });

  it("to a host that the operator named too is followed, without the registry's credentials", async () => {
    await using store = await openTestImages({ allowedRegistries: [front.host, internal.host] });
    internal.behave = () => ({ kind: "pass" });
    const realm = `Bearer realm="${front.url}/token"`;
    front.behave = ({ path, authorization }) => {
      if (path.startsWith("/token")) return { kind: "body", body: '{"token":"for-the-front"}' };
      if (authorization === null) return { kind: "status", status: 401, headers: { "www-authenticate": realm } };
      return path.includes("/blobs/") ? redirect(`${internal.url}${path}`) : { kind: "pass" };
    };
    const earlier = internal.seen.length;
    await store.images.ensure(`${front.host}/app`, { arch: null, tenantId: null });
    const asked = internal.seen.slice(earlier);
    assert.ok(asked.length > 0);
    assert.deepEqual([...new Set(asked.map(({ authorization }) => authorization))], [null]);
  });

  it("without end, to nowhere and to a non-web address ends with the same text", async () => {
    for (const location of [`${front.url}/v2/again`, "file:///etc/passwd", "http://u@127.0.0.1/", "http://", "//"]) {
      front.behave = () => redirect(location);
      assert.match(await refusal(`${front.host}/app`), new RegExp(`^${UNAVAILABLE}`), location);
    }
  });
});

describe("a token server", { skip: skipReason }, () => {
  const challenge = (realm: string): Behaviour => ({
    kind: "status",
    status: 401,
    headers: { "www-authenticate": `Bearer realm="${realm}",service="x"` },
  });

  it("inside gets no request, and nothing of it reaches the registry", async () => {
    const earlier = front.seen.length;
    front.behave = () => challenge(`${internal.url}/api/session`);
    assert.match(await refusal(`${front.host}/app`), new RegExp(`^${UNAVAILABLE}`));
    assert.match(
      await refusal(`${front.host}/app`, { allowedRegistries: ["*", front.host] }),
      new RegExp(`^${UNAVAILABLE}`),
    );
    assert.ok(front.seen.slice(earlier).every(({ authorization }) => authorization === null));
  });

  it("of the registry's own cannot redirect the request for a token elsewhere", async () => {
    front.behave = ({ path }) =>
      path.startsWith("/token") ? redirect(`${internal.url}/api/session`) : challenge(`${front.url}/token`);
    assert.match(await refusal(`${front.host}/app`), new RegExp(`^${UNAVAILABLE}`));
    // Even if the operator named that service too.
    const allowedRegistries = [front.host, internal.host];
    assert.match(await refusal(`${front.host}/app`, { allowedRegistries }), new RegExp(`^${UNAVAILABLE}`));
  });
});

describe("a name that resolves to another address the second time", { skip: skipReason }, () => {
  it("is connected to the address that was checked", async () => {
    const host = `rebind.example:${front.host.split(":")[1]}`;
    const asked: number[] = [];
    const resolve = async () => {
      asked.push(front.seen.length);
      // A second lookup between the check and the connection would return an address where nothing listens.
      const isAgain = asked.length > 1 && asked.at(-1) === asked.at(-2);
      return [{ address: isAgain ? "127.0.0.2" : "127.0.0.1", family: 4 }];
    };
    await using store = await openTestImages({ allowedRegistries: [host], insecureRegistries: [host], resolve });
    assert.equal((await store.images.ensure(`${host}/app`, { arch: null, tenantId: null })).layerCount, 1);
  });
});

describe("a registry with TLS", { skip: skipReason }, () => {
  it("is not downgraded to plain HTTP, neither by a redirect nor for a token", async () => {
    const directory = mkdtempSync(join(tmpdir(), "flotilla-tls-"));
    const [key, cert] = [join(directory, "key.pem"), join(directory, "cert.pem")];
    const subject = ["-subj", "/CN=tls.example", "-addext", "subjectAltName=DNS:tls.example"];
    const make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert];
    execFileSync("openssl", [...make, ...subject], { stdio: "ignore" });
    setDefaultCACertificates([...getCACertificates("default"), readFileSync(cert, "utf8")]);
    let requests = 0;
    let headers: Record<string, string> = {};
    const server = createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, (_request, response) => {
      requests += 1;
      response.writeHead("location" in headers ? 307 : 401, headers).end();
    });
    await new Promise<void>((resolve) => {
      server.listen(0, "127.0.0.1", resolve);
    });
    const host = `tls.example:${(server.address() as AddressInfo).port}`;
    const change = {
      allowedRegistries: [host, internal.host],
      resolve: async () => [{ address: "127.0.0.1", family: 4 }],
    };
    for (headers of [{ location: internal.url }, { "www-authenticate": `Bearer realm="${internal.url}/token"` }]) {
      const before = requests;
      await refusal(`${host}/app`, change);
      assert.ok(requests > before, "the registry itself was asked, over TLS");
    }
    server.closeAllConnections();
    server.close();
    rmSync(directory, { recursive: true });
  });
});

describe("the error for a tenant", { skip: skipReason }, () => {
  it("is the same whatever listens there: nothing, another protocol, an error, a page", async () => {
    const garbage = createTcpServer((socket) => socket.on("error", () => {}).end("SSH-2.0-server\r\n"));
    await new Promise<void>((resolve) => {
      garbage.listen(0, "127.0.0.1", resolve);
    });
    const other = `127.0.0.1:${(garbage.address() as AddressInfo).port}`;
    const told = new Set<string>();
    told.add(await refusal(`${other}/app`, { allowedRegistries: [other] }));
    told.add(await refusal("127.0.0.1:1/app", { allowedRegistries: ["127.0.0.1:1"] }));
    for (const behaviour of [
      { kind: "status", status: 500 },
      { kind: "status", status: 418 },
      { kind: "body", body: "x".repeat(5 * 1024 * 1024) },
      redirect("http://10.0.0.1/"),
    ] as const satisfies readonly Behaviour[]) {
      front.behave = () => behaviour;
      told.add(await refusal(`${front.host}/app`));
    }
    garbage.close();
    assert.equal(told.size, 1, [...told].join("\n"));
  });

  it("differs from the operator's log", async () => {
    await using store = await openTestImages({ allowedRegistries: ["127.0.0.1:1"] });
    await assert.rejects(
      store.images.ensure("127.0.0.1:1/app", { arch: null, tenantId: null }),
      /see the node's log for the reason$/,
    );
    assert.match(store.lines.join(""), /registry 127\.0\.0\.1:1 cannot be reached: .*ECONNREFUSED/);
  });
});
