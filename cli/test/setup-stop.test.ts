/**
 * `npm start` stopped during set-up: nothing remains, and the next start continues. Also set-up that cannot
 * create a user.
 *
 * apt-get, dpkg and the npm called by set-up are fakes: they wait where the real ones fetch or install. The
 * npm that starts set-up is real, and so is all of set-up, in a directory with nothing else of the checkout.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { until } from "../../test/support/until.ts";

const ROOT = join(import.meta.dirname, "../..");
const skip = process.getuid?.() === 0 ? false : "set-up installs packages as root";
const NPM = spawnSync("sh", ["-c", "command -v npm"], { encoding: "utf8" }).stdout.trim();

/** Each waits while a file of its name exists in `$STATE/slow`, and then reports its work as done. */
const WAIT = 'waits() { echo $$ >"$STATE/runs-$1"; while [ -e "$STATE/slow/$1" ]; do sleep 0.05; done; }\n';
const FAKES = {
  "apt-get": `case "$*" in
    *install*--download-only) waits download ;;
    # As the real one does while it runs dpkg.
    *install*) trap '' INT; waits install; : >"$STATE/installed" ;;
    esac`,
  "dpkg-query": `for name; do
      case $name in -*|*{*) continue ;; esac
      [ "$name" = umoci ] && [ ! -e "$STATE/installed" ] || echo "installed=$name "
    done`,
  dpkg: ":",
  npm: `[ "$1" = ci ] || exit 3
    [ ! -e "$STATE/slow/stubborn" ] || trap '' TERM INT
    waits ci; mkdir -p node_modules; : >node_modules/.package-lock.json`,
};

const PACKAGE_LOCK = "{}";

function makeCheckout(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-setup-stop-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const [root, fakes, state, cache] = ["root", "fakes", "state", "cache"].map((name) => join(directory, name)) as [
    string,
    string,
    string,
    string,
  ];
  const dist = join(root, "console", "dist");
  const made = [root, fakes, join(state, "slow"), join(cache, "images"), dist, join(root, "sdk", "src")];
  for (const path of made) mkdirSync(path, { recursive: true });
  cpSync(join(ROOT, "scripts"), join(root, "scripts"), { recursive: true });
  symlinkSync(join(ROOT, "guest"), join(root, "guest"));
  symlinkSync(join(ROOT, "gateway"), join(root, "gateway"));
  writeFileSync(join(root, "package.json"), '{"scripts":{"start":"exec sh scripts/start"}}');
  writeFileSync(join(root, "package-lock.json"), PACKAGE_LOCK);
  // Its console has no sources, so its key is that of the libraries' versions.
  const key = createHash("sha256").update(PACKAGE_LOCK).digest("hex").slice(0, 16);
  writeFileSync(join(dist, "built-from"), `${key}\n`);
  writeFileSync(join(root, "flotilla"), '#!/bin/sh\necho "flotilla: $*"\n', { mode: 0o755 });
  const real =
    process.env["FLOTILLA_CACHE_DIR"] ?? join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "flotilla");
  symlinkSync(join(real, "guest"), join(cache, "guest"));
  symlinkSync(join(real, "images", "busybox"), join(cache, "images", "busybox"));
  for (const [name, text] of Object.entries(FAKES))
    writeFileSync(join(fakes, name), `#!/bin/sh\n${WAIT}${text}\n`, { mode: 0o755 });
  const environment = {
    ...process.env,
    PATH: `${fakes}:${process.env["PATH"]}`,
    STATE: state,
    FLOTILLA_CACHE_DIR: cache,
  };
  const slow = (step: string, isSlow: boolean): void =>
    isSlow ? writeFileSync(join(state, "slow", step), "") : rmSync(join(state, "slow", step));
  return { root, fakes, state, environment, slow };
}

type Checkout = ReturnType<typeof makeCheckout>;

/** Processes that belong to the checkout. */
function left({ state }: Checkout): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0").includes(`STATE=${state}`);
      } catch {
        return false;
      }
    });
}

function start(t: TestContext, checkout: Checkout, how: "terminal" | "plain") {
  const npm = [NPM, "start"];
  const [program = "", ...operands] = how === "terminal" ? ["script", "-qec", npm.join(" "), "/dev/null"] : npm;
  const child = spawn(program, operands, {
    cwd: checkout.root,
    env: checkout.environment,
    stdio: "pipe",
    detached: true,
  });
  t.after(() => {
    for (const pid of left(checkout)) process.kill(Number(pid), "SIGKILL");
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => (output += chunk));
  const isOver = () => child.exitCode !== null || child.signalCode !== null;
  const stop = (): void => {
    if (how === "terminal") child.stdin.write("\x03");
    else child.kill("SIGTERM");
  };
  return { said: () => output, isOver, stop };
}

async function goesOn(t: TestContext, checkout: Checkout): Promise<void> {
  const { said, isOver } = start(t, checkout, "plain");
  await until(isOver, { what: "the next start", deadlineMs: 60_000 });
  assert.match(said(), /setup: ready in .*\n[^]*flotilla: up/);
}

test("packages stay as they are when new ones cannot be installed, also when set-up is killed meanwhile", {
  skip,
}, async (t) => {
  const checkout = makeCheckout(t);
  await goesOn(t, checkout);
  const modules = join(checkout.root, "node_modules");
  writeFileSync(join(modules, "package"), "old");
  const later = new Date(Date.now() + 60_000);
  utimesSync(join(checkout.root, "package-lock.json"), later, later);
  const packages = (): unknown => [
    readFileSync(join(modules, "package"), "utf8"),
    readdirSync(checkout.root).toSorted(),
  ];
  const before = packages();
  const npm = join(checkout.fakes, "npm");
  const text = readFileSync(npm, "utf8");
  // As the real one does.
  writeFileSync(npm, text.replace("waits ci;", "rm -rf node_modules/* node_modules/.[!.]*; waits ci; exit 1;"));
  const failed = start(t, checkout, "plain");
  await until(failed.isOver, { what: "the end of set-up", deadlineMs: 60_000 });
  assert.match(failed.said(), /setup: npm cannot install/);
  assert.deepEqual(packages(), before);
  rmSync(join(checkout.state, "runs-ci"));
  checkout.slow("ci", true);
  start(t, checkout, "plain");
  await until(() => existsSync(join(checkout.state, "runs-ci")), { what: "npm", deadlineMs: 60_000 });
  for (const pid of left(checkout)) process.kill(Number(pid), "SIGKILL");
  await until(() => left(checkout).length === 0, { what: "the end of all its processes" });
  checkout.slow("ci", false);
  const again = start(t, checkout, "plain");
  await until(again.isOver, { what: "the end of set-up", deadlineMs: 60_000 });
  assert.deepEqual(packages(), before);
  writeFileSync(npm, text.replace("waits ci;", "rm -rf node_modules/* node_modules/.[!.]*; waits ci;"), {
    mode: 0o755,
  });
  await goesOn(t, checkout);
  assert.deepEqual(readdirSync(modules), [".package-lock.json"]);
});

for (const how of ["terminal", "plain"] as const) {
  const signal = how === "terminal" ? "Ctrl-C" : "a SIGTERM to npm alone";
  for (const step of ["ci", "download"]) {
    const what = step === "ci" ? "npm ci" : "apt downloads";
    test(`${signal} while ${what} ends set-up immediately, and the next start continues`, { skip }, async (t) => {
      const checkout = makeCheckout(t);
      checkout.slow(step, true);
      const { said, isOver, stop } = start(t, checkout, how);
      await until(() => existsSync(join(checkout.state, `runs-${step}`)), { what: step, deadlineMs: 60_000 });
      stop();
      await until(() => isOver() && left(checkout).length === 0, { what: "the end of all its processes" });
      assert.doesNotMatch(said(), /flotilla: up/);
      checkout.slow(step, false);
      await goesOn(t, checkout);
    });
  }
  test(`${signal} while apt installs lets it finish, starts nothing, and the next start continues`, {
    skip,
  }, async (t) => {
    const checkout = makeCheckout(t);
    checkout.slow("install", true);
    const { said, isOver, stop } = start(t, checkout, how);
    const running = join(checkout.state, "runs-install");
    // The file is there before its content.
    const pidOf = () => (existsSync(running) ? Number(readFileSync(running, "utf8")) : 0) || undefined;
    const pid = await until(pidOf, { what: "the installation", deadlineMs: 60_000 });
    stop();
    const stoppedAt = performance.now();
    // Long enough for a signal to have ended a process.
    await until(() => performance.now() - stoppedAt > 500, { what: "a moment" });
    assert.ok(existsSync(`/proc/${pid}`), `${pid} ended; files: ${readdirSync(checkout.state)}; said: ${said()}`);
    checkout.slow("install", false);
    await until(() => isOver() && left(checkout).length === 0, { what: "the end of all its processes" });
    assert.ok(existsSync(join(checkout.state, "installed")));
    assert.doesNotMatch(said(), /flotilla: up/);
    await goesOn(t, checkout);
  });
}

test("Ctrl-C ends an npm ci that ignores it, as one that undoes its work does for a minute", { skip }, async (t) => {
  const checkout = makeCheckout(t);
  for (const each of ["ci", "stubborn"]) checkout.slow(each, true);
  const { said, isOver, stop } = start(t, checkout, "terminal");
  await until(() => existsSync(join(checkout.state, "runs-ci")), { what: "npm ci", deadlineMs: 60_000 });
  stop();
  await until(() => isOver() && left(checkout).length === 0, { what: "the end of all its processes" });
  assert.doesNotMatch(said(), /flotilla: up/);
  for (const each of ["ci", "stubborn"]) checkout.slow(each, false);
  await goesOn(t, checkout);
});

test("on a host where no user can be created, set-up says that the server will be root, and Flotilla starts", {
  skip,
}, async (t) => {
  const checkout = makeCheckout(t);
  for (const name of ["getent", "useradd"])
    writeFileSync(join(checkout.fakes, name), "#!/bin/sh\nexit 2\n", { mode: 0o755 });
  const { said, isOver } = start(t, checkout, "plain");
  await until(isOver, { what: "the start", deadlineMs: 60_000 });
  assert.match(said(), /setup: it cannot be created; the server will run as root[^]*flotilla: up/);
});
