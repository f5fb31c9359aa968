/**
 * The text that `flotilla up` prints at the end of its start. Users copy its lines, so tests compare them
 * exactly.
 *
 * That the lines work is shown by the tests with a running Flotilla.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { command, greeting, quote } from "./greeting.ts";

const FACTS = {
  url: "http://127.0.0.1:8080",
  dataDirectory: "/srv/flotilla",
  logDirectory: null,
  newAdminKey: "smk_new",
  consoleUrl: "http://127.0.0.1:8080/console/#link=sml_new",
  startedInMs: 3210,
  launcher: "/src/flotilla/flotilla",
  directory: "/src/flotilla",
  isFoundByDefault: true,
};

test("the first start shows the admin key once and three lines to copy", () => {
  assert.deepEqual(greeting(FACTS), [
    "Flotilla runs at http://127.0.0.1:8080 (started in 3.2 s)",
    "",
    "  console     http://127.0.0.1:8080/console/#link=sml_new",
    "              opens once, within ten minutes; `./flotilla console` prints a new link",
    "  admin key   smk_new",
    "              shown this once; kept in /srv/flotilla/admin.key",
    "  data        in /srv/flotilla",
    "",
    "A first machine, from another terminal:",
    "",
    "  ./flotilla machine create local/busybox --name hello --start",
    "  ./flotilla machine exec hello -- uname -a",
    "  ./flotilla machine rm hello",
    "",
    "Ctrl-C stops Flotilla. Running machines keep running, and the next start adopts them.",
  ]);
});

test("a later start says where the key is and never shows it", () => {
  const text = greeting({ ...FACTS, newAdminKey: null }).join("\n");
  assert.match(text, /admin key {3}in \/srv\/flotilla\/admin.key\n/);
  assert.doesNotMatch(text, /smk_/);
});

test("settings that a new terminal does not have are exported before the three lines", () => {
  const lines = greeting({
    ...FACTS,
    isFoundByDefault: false,
    url: "http://127.0.0.1:9090",
    dataDirectory: "/my data",
  });
  const at = lines.findIndex((line) => line.includes("machine create"));
  assert.deepEqual(lines.slice(at - 2, at), [
    "  export FLOTILLA_URL=http://127.0.0.1:9090 FLOTILLA_DATA_DIR='/my data'",
    `  export FLOTILLA_API_KEY="$(cat '/my data/admin.key')"`,
  ]);
});

test("the launcher is called by the shortest path that works from the directory", () => {
  assert.equal(command("/a/flotilla", "/a"), "./flotilla");
  assert.equal(command("/a/flotilla", "/"), "a/flotilla");
  assert.equal(command("/a/flotilla", "/a/b"), "../flotilla");
  assert.equal(command("/a/flotilla", "/x/y/z"), "/a/flotilla");
  assert.equal(command("/a b/flotilla", "/x/y/z"), "'/a b/flotilla'");
});

test("arguments are quoted for the shell only where necessary", () => {
  assert.deepEqual(["plain-1.2/x", "it's", "", "$HOME"].map(quote), ["plain-1.2/x", "'it'\\''s'", "''", "'$HOME'"]);
});
