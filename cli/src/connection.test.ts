/**
 * Which server a command talks to and with which key, for every source of these settings.
 *
 * Always: a key is only sent to the server it belongs to.
 */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { isFoundByDefault, resolveConnection, savedPath } from "./connection.ts";
import { Failure } from "./failure.ts";

function home(t: TestContext, files: Readonly<Record<string, string>>) {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-test-"));
  t.after(() => rmSync(directory, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), text);
  }
  return { HOME: directory };
}

const SAVED = ".config/flotilla/config.json";
const ADMIN = ".local/share/flotilla/admin.key";
const saved = (url: string, apiKey = "smk_saved") => JSON.stringify({ url, apiKey });

test("without settings it talks to this machine with the admin key of the default data directory", (t) => {
  const environment = home(t, { [ADMIN]: "smk_admin\n" });
  const { url, key, keySource } = resolveConnection(environment, {});
  assert.deepEqual([url, key, keySource], ["http://127.0.0.1:8080", "smk_admin", join(environment.HOME, ADMIN)]);
  assert.equal(resolveConnection(home(t, {}), {}).key, null);
});

test("a saved login gives address and key; flags and variables override it", (t) => {
  const environment = home(t, { [SAVED]: saved("https://fleet.example"), key: "smk_file\n" });
  const both = (more: object, options: object = {}) => {
    const { url, key } = resolveConnection({ ...environment, ...more }, options);
    return [url, key];
  };
  assert.deepEqual(both({}), ["https://fleet.example", "smk_saved"]);
  assert.deepEqual(both({ FLOTILLA_API_KEY: "smk_env" }), ["https://fleet.example", "smk_env"]);
  const apiKeyFile = join(environment.HOME, "key");
  assert.deepEqual(both({ FLOTILLA_API_KEY: "smk_env" }, { apiKeyFile }), ["https://fleet.example", "smk_file"]);
  assert.deepEqual(both({ FLOTILLA_URL: "http://a:1/", FLOTILLA_API_KEY: "k" }, { url: "http://b:2" }), [
    "http://b:2",
    "k",
  ]);
});

test("neither a saved key nor a local admin key is sent to a server that it does not belong to", (t) => {
  const environment = home(t, { [SAVED]: saved("https://fleet.example"), [ADMIN]: "smk_admin" });
  assert.equal(resolveConnection(environment, { url: "https://other.example" }).key, null);
  assert.equal(resolveConnection(environment, { url: "http://127.0.0.1.example:8080" }).key, null);
  assert.equal(resolveConnection(environment, { url: "http://localhost:9090" }).key, "smk_admin");
  assert.equal(resolveConnection(environment, { url: "https://fleet.example/" }).key, "smk_saved");
});

test("an unreadable key file, a saved file of another kind and a bad address are refused", (t) => {
  const environment = home(t, {});
  assert.throws(() => resolveConnection(environment, { apiKeyFile: "/nowhere" }), Failure);
  assert.throws(() => resolveConnection(environment, { url: "127.0.0.1:8080" }), /--url is "127.0.0.1:8080"/);
  assert.throws(() => resolveConnection(home(t, { [SAVED]: "{}" }), {}), /flotilla login|holds no address/);
  for (const url of ["javascript:1", "http://", "https://user:secret@fleet.example"])
    assert.throws(() => resolveConnection(home(t, { [SAVED]: saved(url) }), {}), {
      name: "Failure",
      message: /config.json holds no address and key$/,
    });
});

test("without an address, a saved file that cannot be read is refused: the call would go to another server", (t) => {
  // As for a file of another user, which the root user of a test may read.
  const environment = home(t, { [join(SAVED, "file")]: "" });
  assert.throws(() => resolveConnection(environment, {}), {
    name: "Failure",
    message: /config.json: it is a directory/,
  });
  assert.equal(resolveConnection(environment, { url: "http://a:1" }).key, null);
});

test("a saved file of another kind does not matter to a call that names address and key", (t) => {
  const environment = home(t, { [SAVED]: "{", key: "smk_file\n" });
  const [url, apiKeyFile] = ["http://a:1", join(environment.HOME, "key")];
  assert.deepEqual(resolveConnection(environment, { url, apiKeyFile }), {
    url,
    key: "smk_file",
    keySource: apiKeyFile,
  });
  assert.equal(resolveConnection({ ...environment, FLOTILLA_URL: url, FLOTILLA_API_KEY: "k" }, {}).key, "k");
  assert.throws(() => resolveConnection(environment, { url }), Failure);
  assert.throws(() => resolveConnection(environment, { apiKeyFile }), Failure);
});

test("a new terminal finds a server without settings only at the default address with the default directory's key", (t) => {
  const plain = home(t, { [ADMIN]: "smk_admin" });
  const dataDirectory = join(plain.HOME, ".local/share/flotilla");
  const url = "http://127.0.0.1:8080";
  const environment = { ...plain, FLOTILLA_URL: "http://127.0.0.1:1", FLOTILLA_API_KEY: "x" };
  assert.equal(isFoundByDefault(environment, { url, dataDirectory }), true);
  assert.equal(isFoundByDefault(environment, { url: "http://127.0.0.1:9090", dataDirectory }), false);
  assert.equal(isFoundByDefault(environment, { url, dataDirectory: "/elsewhere" }), false);
  const elsewhere = home(t, { [ADMIN]: "smk_admin", [SAVED]: saved("https://fleet.example") });
  assert.equal(
    isFoundByDefault(elsewhere, { url, dataDirectory: join(elsewhere.HOME, ".local/share/flotilla") }),
    false,
  );
});

test("the saved file is in the user's configuration directory", () => {
  assert.equal(savedPath({ HOME: "/u" }), "/u/.config/flotilla/config.json");
  assert.equal(savedPath({ HOME: "/u", XDG_CONFIG_HOME: "/c" }), "/c/flotilla/config.json");
});
