/**
 * The comparison of two trees of files: what differs, what is not looked into, and its bounds.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { FileEntry } from "@flotilla/sdk";
import { compareTrees, type FilesOf } from "./tree-difference.ts";

const OLD = "2026-07-22T20:00:00.000Z";
const NEW = "2026-07-23T20:00:00.000Z";

type Shape = Partial<Omit<FileEntry, "name">> & { readonly content?: string };

/** The files of a scripted machine, by path; directories are those that are named. */
function machine(shapes: Readonly<Record<string, Shape>>): FilesOf & { readonly listed: string[] } {
  const listed: string[] = [];
  const all: readonly (readonly [string, Shape])[] = Object.entries(shapes);
  return {
    listed,
    list(path) {
      listed.push(path);
      const isThere = path === "/" || shapes[path]?.kind === "directory";
      const prefix = path === "/" ? "/" : `${path}/`;
      const entries = all.flatMap(([other, { content, ...facts }]) => {
        const name = other.startsWith(prefix) ? other.slice(prefix.length) : "";
        const usual = { kind: "file", size: content?.length ?? 0, mode: "0644", modifiedAt: OLD } as const;
        return name === "" || name.includes("/") ? [] : [{ ...usual, ...facts, name }];
      });
      return Promise.resolve(isThere ? entries : null);
    },
    hash: (path) => Promise.resolve(shapes[path]?.content ?? null),
  };
}

const DIRECTORY: Shape = { kind: "directory", mode: "0755" };

async function changes(before: Record<string, Shape>, after: Record<string, Shape>, path = "/"): Promise<string[]> {
  const { differences } = await compareTrees(machine(before), machine(after), path);
  return differences.map(({ change, path: at }) => `${change} ${at}`);
}

test("files that only one has, or that differ in kind, size, permissions or content, are listed by path", async () => {
  const before = {
    "/a": DIRECTORY,
    "/a/same": { content: "x" },
    "/a/size": { content: "x" },
    "/a/mode": { content: "x" },
    "/a/gone": { content: "12" },
    "/a/content": { content: "x" },
    "/a/touched": { content: "x" },
    "/a/link": { kind: "link", size: 4 },
    "/kind": DIRECTORY,
    "/kind/below": { content: "x" },
  } as const;
  const after = {
    "/a": { ...DIRECTORY, modifiedAt: NEW, size: 8192 },
    "/a/same": { content: "x" },
    "/a/size": { content: "xyz" },
    "/a/mode": { content: "x", mode: "0600" },
    "/a/new": { content: "123" },
    "/a/content": { content: "y", modifiedAt: NEW },
    "/a/touched": { content: "x", modifiedAt: NEW },
    "/a/link": { kind: "link", size: 4, modifiedAt: NEW },
    "/kind": { content: "x" },
  } as const;
  assert.deepEqual(await changes(before, after), [
    "changed /a/content",
    "removed /a/gone",
    "changed /a/link",
    "changed /a/mode",
    "added /a/new",
    "changed /a/size",
    "changed /kind",
    "removed /kind/below",
  ]);
  const { differences } = await compareTrees(machine(before), machine(after), "/a");
  const size = differences.find(({ path }) => path === "/a/size");
  assert.deepEqual([size?.before?.size, size?.after?.size], [1, 3]);
  assert.deepEqual(await changes(before, before), []);
});

test("a large file with another time counts as changed, and is not read", async () => {
  const large = { size: 1024 * 1024 + 1, content: "the same" };
  assert.deepEqual(await changes({ "/f": large }, { "/f": { ...large, modifiedAt: NEW } }), ["changed /f"]);
  const small = { size: 1024 * 1024, content: "the same" };
  assert.deepEqual(await changes({ "/f": small }, { "/f": { ...small, modifiedAt: NEW } }), []);
});

test("a new directory is listed with what is in it", async () => {
  const added = { "/new": DIRECTORY, "/new/deep": DIRECTORY, "/new/deep/file": { content: "x" } };
  assert.deepEqual(await changes({}, added), ["added /new", "added /new/deep", "added /new/deep/file"]);
  assert.deepEqual(await changes(added, {}), ["removed /new", "removed /new/deep", "removed /new/deep/file"]);
});

test("directories of the kernel and in memory are looked into only where the comparison begins there", async () => {
  const names = ["proc", "sys", "dev", "run", "tmp"];
  const shapes = Object.fromEntries(
    names.flatMap((name) => [
      [`/${name}`, DIRECTORY],
      [`/${name}/file`, { content: "x" }],
    ]),
  );
  const bare = Object.fromEntries(names.map((name) => [`/${name}`, DIRECTORY]));
  const [before, after] = [machine(bare), machine(shapes)];
  assert.deepEqual((await compareTrees(before, after, "/")).differences, []);
  assert.deepEqual([before.listed, after.listed], [["/"], ["/"]]);
  for (const name of names) assert.deepEqual(await changes(bare, shapes, `/${name}`), [`added /${name}/file`]);
});

test("what is in neither machine, too much, and names that no file has, are refused", async () => {
  await assert.rejects(changes({ "/f": { content: "x" } }, {}, "/f"), /\/f is not a directory in either machine/);
  const many = Object.fromEntries(Array.from({ length: 200_001 }, (_, at) => [`/${at}`, { content: "x" }]));
  await assert.rejects(changes({}, many), /more than 200000 files/);
  const evil: FilesOf = {
    list: () => Promise.resolve([{ name: "..", kind: "directory", size: 0, mode: "0755", modifiedAt: OLD }]),
    hash: () => Promise.resolve(null),
  };
  await assert.rejects(compareTrees(evil, machine({}), "/"), /has a file named "\.\.", which is not a valid file name/);
});

test("a directory whose name is not UTF-8 is counted, and not read", async () => {
  const odd = { "/b\ufffd": DIRECTORY };
  const [before, after] = [machine(odd), machine(odd)];
  assert.deepEqual(await compareTrees(before, after, "/"), { differences: [], unread: 1 });
  assert.deepEqual(before.listed, ["/"]);
});
