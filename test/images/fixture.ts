/**
 * An image store in a temporary directory, and functions that inspect the file systems it makes.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { systemClock } from "@flotilla/base/clock";
import type { ImageFault } from "@flotilla/contract/errors";
import { imageFaultIn } from "@flotilla/node/images/image-refused";
import { type ImagesOptions, type NodeImages, openImages } from "@flotilla/node/images/store";
import { makeLog } from "@flotilla/node/log";
import { HOST_ARCH } from "../support/images.ts";
import { launcherPath } from "../support/launcher.ts";

const execute = promisify(execFile);

/** Whether a pull was refused with this text and code; null: it may succeed the next time. */
export const isTold =
  (message: RegExp, code: ImageFault | null) =>
  (error: Error): true => {
    assert.match(error.message, message);
    assert.equal(imageFaultIn(error), code);
    return true;
  };

/** Only root can make the owners, devices and namespaces of layers. */
export const skipReason: string | false =
  process.getuid?.() === 0 ? false : "only root unpacks images; run the tests as root";

export interface TestImages extends AsyncDisposable {
  readonly images: NodeImages;
  readonly directory: string;
  /** Log lines so far. */
  readonly lines: readonly string[];
  /** Opens the same directory again, like a new start of the agent. */
  reopen(change?: Partial<ImagesOptions>): Promise<NodeImages>;
}

/** Retries are quick here, and silence times out early. */
export async function openTestImages(change: Partial<ImagesOptions> = {}): Promise<TestImages> {
  const work = await mkdtemp(join(tmpdir(), "flotilla-images-"));
  const directory = change.directory ?? join(work, "images");
  const lines: string[] = [];
  const options: ImagesOptions = {
    directory,
    launcher: await launcherPath(),
    cacheDirectory: join(work, "cache"),
    arch: HOST_ARCH,
    allowedRegistries: ["127.0.0.1:*"],
    mirrors: new Map(),
    insecureRegistries: [],
    credentialsPath: null,
    cacheBytesMax: 20e9,
    digestsInUse: () => Promise.resolve(new Set()),
    clock: systemClock,
    log: makeLog({ level: "debug", clock: systemClock, write: (line) => lines.push(line) }),
    stallTimeoutMs: 1000,
    retryDelayMs: 10,
    ...change,
  };
  let current = await openImages(options);
  return {
    images: current,
    directory,
    lines,
    reopen: async (more = {}) => {
      await current[Symbol.asyncDispose]();
      current = await openImages({ ...options, ...more });
      return current;
    },
    [Symbol.asyncDispose]: async () => {
      await current[Symbol.asyncDispose]();
      await rm(work, { recursive: true, force: true });
    },
  };
}

/** What debugfs prints for a request, such as `cat /etc/passwd`. Never mounts the file system. */
export async function askFileSystem(rootPath: string, request: string): Promise<string> {
  const { stdout } = await execute("debugfs", ["-R", request, rootPath], { maxBuffer: 64 * 1024 * 1024 });
  return stdout;
}

/** Names in a directory of the file system, without `.` and `..`. */
export async function namesIn(rootPath: string, directory: string): Promise<readonly string[]> {
  const lines = (await askFileSystem(rootPath, `ls -p ${directory}`)).split("\n");
  return lines
    .map((line) => line.split("/")[5] ?? "")
    .filter((name) => name !== "" && name !== "." && name !== "..")
    .toSorted();
}

export interface FileFacts {
  /** Permission bits in octal, as debugfs writes them. */
  readonly mode: string;
  readonly uid: number;
  readonly gid: number;
  readonly links: number;
  readonly type: string;
}

export async function factsOf(rootPath: string, path: string): Promise<FileFacts> {
  const text = await askFileSystem(rootPath, `stat ${path}`);
  const field = (pattern: RegExp): string => pattern.exec(text)?.[1] ?? "";
  return {
    mode: field(/Mode:\s+(\d+)/),
    uid: Number(field(/User:\s+(\d+)/)),
    gid: Number(field(/Group:\s+(\d+)/)),
    links: Number(field(/Links: (\d+)/)),
    type: field(/Type: (\w[\w ]*?)\s+Mode/),
  };
}

/** Fails with e2fsck's message when the file system is not clean. */
export async function checkFileSystem(rootPath: string): Promise<void> {
  await execute("e2fsck", ["-fn", rootPath]);
}

/** Names below the store's directory: `work`, `blobs`, `unpacked` or `references`. */
export async function left(directory: string, name: string): Promise<readonly string[]> {
  return (await readdir(join(directory, name))).toSorted();
}
