/**
 * Pulls from a real registry: every way to name an image, and the resulting file system.
 */
import assert from "node:assert/strict";
import { chmod, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { alpinePlatforms, busyboxPlatforms, HOST_ARCH, pushImage } from "../support/images.ts";
import { isLayer, startFaultyProxy } from "../support/faulty-proxy.ts";
import { REGISTRY_USER, startRegistry, type TestRegistry } from "../support/registry.ts";
import {
  askFileSystem,
  checkFileSystem,
  factsOf,
  left,
  namesIn,
  isTold,
  openTestImages,
  skipReason,
} from "./fixture.ts";

const OTHER_ARCH = HOST_ARCH === "amd64" ? "arm64" : "amd64";
const anyArch = { arch: null, tenantId: null };

let registry: TestRegistry;

before(async () => {
  registry = await startRegistry();
  await pushImage(registry, "library/busybox:latest", await busyboxPlatforms());
  await pushImage(registry, "library/alpine:latest", await alpinePlatforms());
  await pushImage(registry, "team/tools/app:v2", await busyboxPlatforms());
});
after(() => registry[Symbol.asyncDispose]());

describe("names", { skip: skipReason }, () => {
  it("all spellings of an image on Docker Hub reach it through the mirror, and are one image", async () => {
    await using store = await openTestImages({ mirrors: new Map([["docker.io", registry.url]]) });
    const names = ["alpine", "alpine:latest", "library/alpine", "docker.io/library/alpine", "index.docker.io/alpine"];
    const images = await Promise.all(names.map((name) => store.images.ensure(name, anyArch)));
    assert.deepEqual(new Set(images.map((image) => image.digest)).size, 1);
    assert.deepEqual([...new Set(images.map((image) => image.reference))], ["docker.io/library/alpine:latest"]);
    assert.equal((await store.images.list()).length, 1);
  });

  it("a registry on loopback is reached by host, port and path, over plain HTTP", async () => {
    await using store = await openTestImages();
    const image = await store.images.ensure(`${registry.host}/team/tools/app:v2`, anyArch);
    assert.equal(image.reference, `${registry.host}/team/tools/app:v2`);
    const again = await store.images.ensure(`${registry.host}/team/tools/app@${image.digest}`, anyArch);
    assert.equal(again.digest, image.digest);
    assert.equal((await left(store.directory, "unpacked")).length, 1);
  });

  it("another architecture of a list is pulled on request", async () => {
    await using store = await openTestImages({ mirrors: new Map([["docker.io", registry.url]]) });
    const image = await store.images.ensure("alpine", { arch: OTHER_ARCH, tenantId: null });
    assert.equal(image.architecture, OTHER_ARCH);
    assert.ok(image.configuration.env.includes(`ARCH=${OTHER_ARCH}`));
    assert.equal(await store.images.find("alpine", null), undefined);
    assert.equal((await store.images.find("alpine", OTHER_ARCH))?.digest, image.digest);
  });

  it("a missing image is reported with its registry, and the log says who asked for it", async () => {
    await using store = await openTestImages({ mirrors: new Map([["registry.invalid", registry.url]]) });
    await assert.rejects(store.images.ensure("registry.invalid/none:v1", anyArch), (error: Error) => {
      assert.match(error.message, /does not exist: registry registry\.invalid has no such image$/);
      return true;
    });
    const log = store.lines.join("");
    assert.match(log, /mirror http[^ ]* answered 404, and registry registry\.invalid cannot be reached: /);
    await assert.rejects(
      store.images.ensure(`${registry.host}/none`, anyArch),
      isTold(/does not exist: registry 127/, "image_not_found"),
    );
  });

  it("a wrong architecture is reported with those that the image has", async () => {
    await using store = await openTestImages({ arch: "riscv64" });
    const WRONG = "image_wrong_platform";
    const list = /has no variant for linux\/riscv64; it has linux\/amd64, linux\/arm64$/;
    await assert.rejects(store.images.ensure(`${registry.host}/library/alpine`, anyArch), isTold(list, WRONG));
    const single = new RegExp(`has no variant for linux/riscv64; it has linux/${HOST_ARCH}$`);
    await assert.rejects(store.images.ensure(`${registry.host}/library/busybox`, anyArch), isTold(single, WRONG));
    assert.deepEqual(await left(store.directory, "unpacked"), []);
  });

  it("an image for one architecture is not taken for another, when it is there already or comes at the same time", async () => {
    await using store = await openTestImages();
    const busybox = `${registry.host}/library/busybox`;
    const other = { arch: OTHER_ARCH, tenantId: null };
    const isWrong = isTold(new RegExp(`has no variant for linux/${OTHER_ARCH}; it has`), "image_wrong_platform");
    const first = store.images.ensure(busybox, anyArch);
    await Promise.all([first, assert.rejects(store.images.ensure(busybox, other), isWrong)]);
    await assert.rejects(store.images.ensure(busybox, other), isWrong);
    assert.equal(await store.images.find(busybox, OTHER_ARCH), undefined);
  });

  it("a local name is never requested from a registry", async () => {
    await using proxy = await startFaultyProxy(registry.url);
    const mirrors = new Map([
      ["docker.io", proxy.url],
      ["local", proxy.url],
    ]);
    await using store = await openTestImages({ mirrors });
    await assert.rejects(store.images.ensure("local/busybox", anyArch), /not on this node, and local images are never/);
    assert.deepEqual(proxy.seen, []);
  });
});

describe("mirrors and credentials", { skip: skipReason }, () => {
  it("an image that the mirror does not have comes from the registry itself", async () => {
    await using empty = await startRegistry();
    await using store = await openTestImages({ mirrors: new Map([[registry.host, empty.url]]) });
    assert.equal((await store.images.ensure(`${registry.host}/library/busybox`, anyArch)).layerCount, 1);
  });

  it("a mirror that is down is skipped", async () => {
    const gone = await startRegistry();
    await gone[Symbol.asyncDispose]();
    await using store = await openTestImages({ mirrors: new Map([[registry.host, gone.url]]) });
    assert.equal((await store.images.ensure(`${registry.host}/library/busybox`, anyArch)).layerCount, 1);
  });

  it("a private registry accepts the node's credentials, and no request without", async () => {
    await using closed = await startRegistry({ directory: registry.directory, isPrivate: true });
    const directory = await mkdtemp(join(tmpdir(), "flotilla-credentials-"));
    const path = join(directory, "config.json");
    const auth = Buffer.from(`${REGISTRY_USER.name}:${REGISTRY_USER.password}`).toString("base64");
    await writeFile(path, JSON.stringify({ auths: { [closed.host]: { auth } } }));
    await chmod(path, 0o644);
    await using stranger = await openTestImages();
    await assert.rejects(stranger.images.ensure(`${closed.host}/library/busybox`, anyArch), /needs credentials/);
    await using store = await openTestImages({ credentialsPath: path });
    assert.equal((await store.images.ensure(`${closed.host}/library/busybox`, anyArch)).layerCount, 1);
    const log = store.lines.join("");
    assert.match(log, /other users of this host can read/);
    assert.ok(!log.includes(auth) && !log.includes(REGISTRY_USER.password));
    await rm(directory, { recursive: true });
  });

  it("a token is fetched where the registry says, kept for the pull, and fetched again when it has expired", async () => {
    await using proxy = await startFaultyProxy(registry.url);
    let tokens = 0;
    const challenge = `Bearer realm="${proxy.url}/token?account=x",service="here"`;
    proxy.behave = (request) => {
      if (request.path.startsWith("/token"))
        return { kind: "body", body: JSON.stringify({ token: `token-${++tokens}` }) };
      // The first token is valid until the first layer.
      const isValid = request.authorization === `Bearer token-${isLayer(request) ? 2 : tokens}` && tokens > 0;
      return isValid ? { kind: "pass" } : { kind: "status", status: 401, headers: { "www-authenticate": challenge } };
    };
    await using store = await openTestImages();
    await store.images.ensure(`${proxy.host}/library/busybox`, anyArch);
    const asked = proxy.seen.filter((request) => request.path.startsWith("/token"));
    assert.equal(asked.length, 2);
    assert.match(asked[0]?.path ?? "", /account=x&service=here&scope=repository%3Alibrary%2Fbusybox%3Apull$/);
  });
});

describe("a registry that offers several ways to authorize", { skip: skipReason }, () => {
  it("is asked with a token, wherever among them it names the token server", async () => {
    await using proxy = await startFaultyProxy(registry.url);
    const bearer = `Bearer realm="${proxy.url}/token",service="a, b=c"`;
    for (const challenge of [
      `${bearer}, Basic realm="here"`,
      `Basic realm="here", ${bearer}`,
      `Negotiate, ${bearer}`,
    ]) {
      const earlier = proxy.seen.length;
      proxy.behave = (request) => {
        if (request.path.startsWith("/token")) return { kind: "body", body: '{"token":"t"}' };
        if (request.authorization === "Bearer t") return { kind: "pass" };
        return { kind: "status", status: 401, headers: { "www-authenticate": challenge } };
      };
      await using store = await openTestImages();
      await store.images.ensure(`${proxy.host}/library/busybox`, anyArch);
      const asked = proxy.seen.slice(earlier).find(({ path }) => path.startsWith("/token"));
      assert.match(asked?.path ?? "", /service=a%2C\+b%3Dc&/, challenge);
    }
  });
});

describe("file systems", { skip: skipReason }, () => {
  it("whiteouts, opaque directories, owners, modes, links and capabilities are as the layers say", async () => {
    await using store = await openTestImages();
    const { rootPath, configuration } = await store.images.ensure(`${registry.host}/library/alpine`, anyArch);
    assert.deepEqual(await namesIn(rootPath, "/srv"), ["hidden", "kept"]);
    assert.deepEqual(await namesIn(rootPath, "/srv/hidden"), ["new"]);
    assert.equal(await askFileSystem(rootPath, "cat /srv/hidden/new"), "from the second layer");
    const note = await factsOf(rootPath, "/home/sailor/note");
    assert.deepEqual([note.uid, note.gid, note.mode, note.type], [1000, 1000, "0600", "regular"]);
    assert.equal((await factsOf(rootPath, "/home/sailor")).mode, "0750");
    assert.deepEqual((({ mode, links }) => [mode, links])(await factsOf(rootPath, "/bin/setuid-too")), ["04755", 2]);
    assert.match(
      await askFileSystem(rootPath, "ea_list /bin/ping-cap"),
      /security\.capability \(20\) = 01 00 00 02 00 20/,
    );
    assert.equal((await factsOf(rootPath, "/dev/null")).type, "character special");
    assert.equal((await factsOf(rootPath, "/tmp")).mode, "01777");
    await checkFileSystem(rootPath);
    assert.deepEqual(configuration, {
      env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "PORT_OF_CALL=Valparaíso", `ARCH=${HOST_ARCH}`],
      workdir: "/home/sailor",
      user: "sailor",
      entrypoint: ["/bin/sh", "-c"],
      command: ["cat note"],
    });
  });

  it("the directories a guest needs exist, and the file system can grow to the largest disk", async () => {
    await using store = await openTestImages();
    const image = await store.images.ensure(`${registry.host}/library/busybox`, anyArch);
    const names = await namesIn(image.rootPath, "/");
    for (const name of ["proc", "sys", "dev", "tmp", "run", "etc", "workspace"]) assert.ok(names.includes(name), name);
    const features = await askFileSystem(image.rootPath, "stats -h");
    assert.match(features, /64bit/);
    assert.match(features, /Reserved block count:\s+0\n/);
    assert.ok(image.rootBytes > image.sizeBytes, "the file is sparse");
  });

  it("nothing is left over: no blob, no tree, and the file can be read and not written", async () => {
    await using store = await openTestImages();
    const { rootPath } = await store.images.ensure(`${registry.host}/library/alpine`, anyArch);
    assert.deepEqual(await left(store.directory, "blobs"), []);
    assert.deepEqual(await left(store.directory, "work"), []);
    assert.equal(((await stat(rootPath)).mode & 0o777).toString(8), "444");
    assert.equal(((await stat(store.directory)).mode & 0o777).toString(8), "700");
  });
});

describe("cached images", { skip: skipReason }, () => {
  it("fifty concurrent callers make one pull, and all receive its progress", async () => {
    await using proxy = await startFaultyProxy(registry.url);
    await using store = await openTestImages();
    const notified = new Set<number>();
    const images = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        store.images.ensure(`${proxy.host}/library/alpine`, {
          arch: null,
          tenantId: null,
          onProgress: () => notified.add(index),
        }),
      ),
    );
    assert.equal(new Set(images.map((image) => image.rootPath)).size, 1);
    assert.equal(notified.size, 50);
    const paths = proxy.seen.map((request) => request.path);
    assert.equal(new Set(paths).size, paths.length, "nothing was asked for twice");
  });

  it("progress counts bytes up to the total and names the layer", async () => {
    await using store = await openTestImages();
    const seen: { message: string; doneBytes: number; totalBytes: number }[] = [];
    await store.images.ensure(`${registry.host}/library/alpine`, {
      arch: null,
      tenantId: null,
      onProgress: (item) => seen.push(item),
    });
    assert.ok(seen.some(({ message }) => /^pulling layer [1-3] of 3, \d+ %$/.test(message)));
    const pulled = seen.filter(({ message }) => message.startsWith("pulling")).at(-1);
    assert.equal(pulled?.doneBytes, pulled?.totalBytes);
    assert.ok((pulled?.totalBytes ?? 0) > 100_000);
  });

  it("a cached tag is used without a request, also after a restart and with the registry gone", async () => {
    await using proxy = await startFaultyProxy(registry.url);
    await using store = await openTestImages();
    const name = `${proxy.host}/library/busybox`;
    const first = await store.images.ensure(name, anyArch);
    const asked = proxy.seen.length;
    const images = await store.reopen();
    proxy.behave = () => ({ kind: "status", status: 500 });
    assert.deepEqual((await images.ensure(name, anyArch)).digest, first.digest);
    assert.deepEqual((await images.find(name, null))?.configuration, first.configuration);
    assert.equal((await images.findByDigest(first.digest))?.rootPath, first.rootPath);
    assert.equal(proxy.seen.length, asked);
  });

  it("a refresh fetches what the tag means now, and the old image stays for the machines made from it", async () => {
    await using moving = await startRegistry();
    await pushImage(moving, "app:latest", await busyboxPlatforms());
    await using store = await openTestImages();
    const old = await store.images.ensure(`${moving.host}/app`, anyArch);
    await pushImage(moving, "app:latest", await alpinePlatforms());
    assert.equal((await store.images.ensure(`${moving.host}/app`, anyArch)).digest, old.digest);
    const fresh = await store.images.ensure(`${moving.host}/app`, { arch: null, tenantId: null, isRefresh: true });
    assert.notEqual(fresh.digest, old.digest);
    assert.equal((await store.images.find(`${moving.host}/app`, null))?.digest, fresh.digest);
    assert.equal((await store.images.findByDigest(old.digest))?.rootPath, old.rootPath);
    const names = (await store.images.list()).map(({ reference }) => reference);
    assert.deepEqual(names, [`${moving.host}/app:latest`, `${moving.host}/app@${old.digest}`]);
  });

  it("a caller who cancels leaves the pull to the others", async () => {
    await using proxy = await startFaultyProxy(registry.url);
    const gate = Promise.withResolvers<void>();
    proxy.behave = (request) => {
      if (isLayer(request)) gate.resolve();
      return { kind: "pass" };
    };
    await using store = await openTestImages();
    const leaving = new AbortController();
    const name = `${proxy.host}/library/busybox`;
    const gone = store.images.ensure(name, { arch: null, tenantId: null, signal: leaving.signal });
    const stays = store.images.ensure(name, anyArch);
    await gate.promise;
    leaving.abort(new Error("changed my mind"));
    await assert.rejects(gone, /changed my mind/);
    assert.equal((await stays).layerCount, 1);
  });
});
