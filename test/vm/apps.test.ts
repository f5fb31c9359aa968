/**
 * Real apps in real machines, deployed as their users deploy them: a busybox httpd, a Node server with
 * WebSockets and event streams, and a Python WSGI app. While their releases are replaced by each strategy, a
 * client counts what its requests get.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import type { Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import type { AppInfo } from "@flotilla/contract/apps";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { busyboxPlatforms, debianPlatforms, type PlatformSpec, pushImage } from "../support/images.ts";
import { startRegistry, type TestRegistry } from "../support/registry.ts";
import { makeTar, type TarMember } from "../support/tar.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 120_000 };
/** Emulated guests that all start at once need more than people's apps. */
const DEADLINES = { placingDeadlineSecs: 600, healthDeadlineSecs: 600 };
const HEALTH = { type: "http", path: "/health", intervalSecs: 1, timeoutSecs: 20, retries: 3 };
const SIZE = { cpus: 1, memoryMb: 256 };

const NODE_SERVER = `
const { createHash } = require("node:crypto");
const version = process.env.VERSION ?? "1";
const server = require("node:http").createServer((request, response) => {
  if (request.url === "/events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const timer = setInterval(() => response.write("data: " + version + "\\n\\n"), 200);
    response.on("close", () => clearInterval(timer));
  } else if (request.url === "/slow") setTimeout(() => response.end(version), 5000);
  else response.end(version);
});
server.on("upgrade", (request, socket) => {
  const accept = createHash("sha1").update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + "\\r\\n\\r\\n");
  socket.on("data", (frame) => {
    const length = frame[1] & 127;
    const text = Buffer.from(frame.subarray(6, 6 + length).map((byte, at) => byte ^ frame[2 + (at % 4)]));
    socket.write(Buffer.concat([Buffer.from([0x81, length]), text]));
  });
  socket.on("error", () => {});
});
process.on("SIGTERM", () => server.close(() => process.exit(0)));
server.listen(8080, () => console.log("version " + version + " listens"));
`;

const PYTHON_SERVER = `
import os, socketserver
from wsgiref.simple_server import WSGIServer, make_server

class Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

def app(environ, start_response):
    start_response("200 OK", [("content-type", "text/plain")])
    return [os.environ.get("VERSION", "1").encode()]

make_server("", 8080, app, server_class=Server).serve_forever()
`;

/** The image with these files over it, and this command. */
const withFiles = (
  [base]: readonly PlatformSpec[],
  files: readonly TarMember[],
  config: Readonly<Record<string, unknown>>,
): readonly PlatformSpec[] => {
  assert.ok(base !== undefined);
  const layer = { tar: makeTar(files), compression: "gzip" } as const;
  return [{ ...base, config: { ...base.config, ...config }, layers: [...base.layers, layer] }];
};

describe("real apps", { skip: skipReason }, () => {
  let registry: TestRegistry;
  let flotilla: Flotilla;

  before(async () => {
    registry = await startRegistry();
    const web = [
      { name: "www", type: "directory" },
      { name: "www/index.html", content: "1" },
      { name: "www/health", content: "well" },
    ] as const;
    const exposes = (port: number) => ({ ExposedPorts: { [`${port}/tcp`]: {} } });
    const listens = exposes(8080);
    const debian = await debianPlatforms();
    const httpd = { ...exposes(80), Cmd: ["httpd", "-f", "-p", "80", "-h", "/www"] };
    await pushImage(registry, "team/busybox-web", withFiles(await busyboxPlatforms(), web, httpd));
    const node = [{ name: "srv/app.js", content: NODE_SERVER }];
    await pushImage(registry, "team/node-web", withFiles(debian, node, { ...listens, Cmd: ["nodejs", "/srv/app.js"] }));
    const python = [{ name: "srv/app.py", content: PYTHON_SERVER }];
    const runPython = ["python3", "-u", "/srv/app.py"];
    await pushImage(registry, "team/python-web", withFiles(debian, python, { ...listens, Cmd: runPython }));
    const environment = { FLOTILLA_REGISTRY_MIRRORS: `docker.io=${registry.url}` };
    flotilla = await startFlotilla({
      driver: "qemu",
      nodeEnvironment: environment,
      serverEnvironment: () => environment,
    });
  });
  after(async () => {
    await flotilla?.[Symbol.asyncDispose]();
    await registry?.[Symbol.asyncDispose]();
  });

  async function deploy(name: string, fields: object): Promise<AppInfo> {
    const body = { name, image: `team/${name}`, health: HEALTH, ...SIZE, ...DEADLINES, ...fields };
    const answer = await flotilla.client().post("/v1/apps", body);
    assert.equal(answer.status, 200, answer.text);
    return answer.json as AppInfo;
  }

  /** Waits until all that is asked serves, of one release. */
  const settled = (name: string): Promise<AppInfo> =>
    until(
      async () => {
        const app = (await flotilla.client().get(`/v1/apps/${name}`)).json as AppInfo;
        const { status, instances, replicas, release } = app;
        const isDone = instances.every(({ isServing, generation }) => isServing && generation === release);
        return status === "running" && isDone && instances.length === replicas && app;
      },
      { what: `${name} to be settled`, ...LONG },
    );

  async function change(name: string, verb: string, body: object = {}): Promise<AppInfo> {
    const answer = await flotilla.client().post(`/v1/apps/${name}/${verb}`, body);
    assert.equal(answer.status, 200, answer.text);
    return await settled(name);
  }

  async function destroy(name: string): Promise<void> {
    assert.equal((await flotilla.client().delete(`/v1/apps/${name}`)).status, 204);
  }

  /** The app's host at the ingress. */
  const placeOf = ({ url }: AppInfo) => {
    const { host, port } = new URL(url);
    return { host: "127.0.0.1", port, headers: { host } };
  };

  async function get(app: AppInfo, path = "/"): Promise<string> {
    const asked = request({ ...placeOf(app), path, agent: false });
    asked.end();
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    let body = "";
    for await (const chunk of answer.setEncoding("utf8")) body += chunk as string;
    if (answer.statusCode !== 200) throw new Error(`${answer.statusCode}: ${body}`);
    return body;
  }

  /**
   * Asks, one request after the other, until it is stopped. Returns how often each version answered; throws
   * with the first failures.
   */
  function traffic(app: AppInfo): () => Promise<ReadonlyMap<string, number>> {
    const answers = new Map<string, number>();
    const failures: string[] = [];
    const stopping = new AbortController();
    const asking = (async () => {
      while (!stopping.signal.aborted) {
        await get(app).then(
          (version) => void answers.set(version, (answers.get(version) ?? 0) + 1),
          (error: unknown) => void failures.push(String(error)),
        );
      }
    })();
    return async () => {
      stopping.abort();
      await asking;
      assert.deepEqual(failures.slice(0, 3), [], `${failures.length} requests failed`);
      return answers;
    };
  }

  const version = (number: number) => ({ env: [{ key: "VERSION", value: String(number) }] });

  test("a busybox httpd serves from its image alone, and scales, without a failed request", async () => {
    const asked = await deploy("busybox-web", {});
    assert.equal(asked.port, 80, "the port that its image exposes");
    const app = await settled("busybox-web");
    const stop = traffic(app);
    const scaled = await change("busybox-web", "scale", { count: 2 });
    assert.equal(scaled.instances.length, 2);
    await change("busybox-web", "scale", { count: 1 });
    assert.deepEqual([...(await stop()).keys()], ["1"]);
    await destroy("busybox-web");
    await assert.rejects(get(app), /^Error: 401/, "as for each name that is not public");
  });

  test("a Node server keeps its WebSockets, streams and slow requests over a blue-green deploy", async () => {
    await deploy("node-web", { ...version(1), stopGraceSecs: 20 });
    const app = await settled("node-web");
    const stop = traffic(app);
    await deploy("node-web", { ...version(2), stopGraceSecs: 20, strategy: { type: "blueGreen" } });
    await using socket = await openWebSocket(app);
    const stream = await openStream(app);
    assert.equal(await socket.echo("before"), "before");
    // The last slow request that the first release gets, as nearly as can be asked.
    let slow = get(app, "/slow");
    const answered: string[] = [];
    await until(
      async () => {
        answered.push(await slow);
        slow = get(app, "/slow");
        return (await get(app)) === "2";
      },
      { what: "the second release to serve", ...LONG },
    );
    assert.equal(await socket.echo("after"), "after", "an open WebSocket stays with its release");
    assert.ok(stream.lines().every((line) => line === "data: 1"));
    await slow;
    assert.ok(answered.includes("1"));
    socket.close();
    stream.close();
    await settled("node-web");
    const answers = await stop();
    assert.deepEqual([...answers.keys()].toSorted(), ["1", "2"]);
    await destroy("node-web");
  });

  test("a Python WSGI app rolls, and rolls back by itself from a release that never serves", async () => {
    await deploy("python-web", version(1));
    const app = await settled("python-web");
    const stop = traffic(app);
    await deploy("python-web", { ...version(2), strategy: { type: "rolling" } });
    await settled("python-web");
    await deploy("python-web", { ...version(3), port: 81, strategy: { type: "canary" }, healthDeadlineSecs: 5 });
    const failed = await until(
      async () => {
        const seen = (await flotilla.client().get("/v1/apps/python-web")).json as AppInfo;
        return seen.rollout?.phase === "failed" && seen.status === "running" && seen;
      },
      { what: "the third release to be rolled back", ...LONG },
    );
    assert.match(failed.rollout?.message ?? "", /release 3 was rolled back: .*nothing listens on port 81/);
    await change("python-web", "rollback", { release: 1 });
    const answers = await stop();
    assert.deepEqual([...answers.keys()].toSorted(), ["1", "2"]);
    await destroy("python-web");
  });

  async function openWebSocket(app: AppInfo) {
    const { headers, ...place } = placeOf(app);
    const key = randomBytes(16).toString("base64");
    const upgrade = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13" };
    const asked = request({ ...place, headers: { ...headers, ...upgrade, "sec-websocket-key": key } });
    asked.end();
    const [answer, socket] = (await once(asked, "upgrade")) as [IncomingMessage, Socket];
    const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
    assert.equal(answer.headers["sec-websocket-accept"], accept);
    socket.on("error", () => undefined);
    return {
      async echo(text: string): Promise<string> {
        const mask = randomBytes(4);
        const masked = Buffer.from(text).map((byte, at) => byte ^ (mask[at % 4] ?? 0));
        socket.write(Buffer.concat([Buffer.from([0x81, 0x80 | text.length]), mask, masked]));
        const [frame] = (await once(socket, "data")) as [Buffer];
        return frame.subarray(2).toString();
      },
      close: () => void socket.destroy(),
      [Symbol.asyncDispose]: async () => void socket.destroy(),
    };
  }

  async function openStream(app: AppInfo) {
    const asked = request({ ...placeOf(app), path: "/events", agent: false });
    asked.end();
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    let received = "";
    answer.setEncoding("utf8").on("data", (chunk: string) => (received += chunk));
    answer.on("error", () => undefined);
    asked.on("error", () => undefined);
    await once(answer, "data");
    return {
      lines: () => received.split("\n").filter((line) => line !== ""),
      close: () => void asked.destroy(),
    };
  }
});
