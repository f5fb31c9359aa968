/**
 * What machines serve cannot act as the console: pages on a neighbouring host, and pages below the server's
 * own address, opened by a browser that is signed in.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import type { Page } from "playwright-core";
import { openBrowser, startBrowser } from "../support/console.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

/** What the guest received of cookies. */
const cookies: string[] = [];
const guest = createServer((request, response) => {
  cookies.push(request.headers.cookie ?? "");
  response.writeHead(200, { "content-type": "text/html", "set-cookie": "flotilla_console=smb_made-up; Path=/" });
  response.end("<!doctype html><title>hostile</title><p>hostile</p>");
});
await new Promise<void>((resolve) => guest.listen(0, "127.0.0.1", resolve));
after(() => guest.close());
after(() => guest.closeAllConnections());
const flotilla = await startFlotilla({
  serverEnvironment: (port) => ({ FLOTILLA_MACHINES_URL: `http://localhost:${port}` }),
});
after(() => flotilla[Symbol.asyncDispose]());
const browser = await startBrowser();
after(() => browser.close());
const client = flotilla.client();
// Its neighbours are of the same site for a browser.
const home = client.url.replace("127.0.0.1", "localhost");
const ports = { ports: [{ port: 80 }], env: { FAKE_PORTS: `80=${(guest.address() as AddressInfo).port}` } };
const { id } = await flotilla.create({ name: "hostile", public: true, ...ports });
await flotilla.start(id);

/** What a page tries as its browser's user, with how each try ended. */
async function attack(page: Page, target: string): Promise<Readonly<Record<string, string>>> {
  return await page.evaluate(
    async ({ console_, machine }) => {
      const outcome = (answer: Promise<Response>): Promise<string> =>
        answer.then(
          async (response) => `${response.type} ${response.status} ${await response.text()}`,
          () => "failed",
        );
      const ask = (path: string, init: RequestInit): Promise<string> =>
        outcome(fetch(console_ + path, { credentials: "include", ...init }));
      const opened = (url: string): Promise<string> =>
        new Promise((resolve) => {
          const socket = new WebSocket(url);
          socket.onopen = () => resolve("open");
          socket.onerror = () => resolve("failed");
        });
      const plain = { method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body: "{}" } as const;
      return {
        read: await ask("/v1/me", {}),
        blindRead: await ask("/v1/me", { mode: "no-cors" }),
        write: await ask("/v1/apikeys", { method: "POST", body: "{}" }),
        blindWrite: await ask("/v1/apikeys", plain),
        header: await ask("/v1/me", { headers: { "x-flotilla-console": "1" } }),
        link: await ask("/v1/console/links", { ...plain, mode: "cors" }),
        signOut: await ask("/v1/console/session", { method: "DELETE" }),
        socket: await opened(`${console_.replace("http", "ws")}/v1/machines/${machine}/exec/interactive`),
        cookies: String(Reflect.get(Reflect.get(globalThis, "document"), "cookie")),
      };
    },
    { console_: target, machine: id },
  );
}

async function signedIn() {
  const opened = await openBrowser(home, { browser });
  await opened.page.goto(home + (client.key === null ? "" : (await client.post("/v1/console/links")).json.path));
  await opened.page.locator("main#content").waitFor();
  return opened;
}

const keyCount = async (): Promise<number> => ((await client.get("/v1/apikeys")).json as object[]).length;

test("a page of a machine on a neighbouring host reads and changes nothing as its browser's user", async () => {
  await using opened = await signedIn();
  const keys = await keyCount();
  const page = await opened.context.newPage();
  const { url } = (await client.get(`/v1/machines/${id}`)).json as { readonly url: string };
  assert.match(url, /^http:\/\/hostile\.localhost:/);
  await page.goto(url);
  assert.equal(await page.title(), "hostile");
  const { cookies: readable, ...tries } = await attack(page, home);
  for (const [name, outcome] of Object.entries(tries)) assert.match(outcome, /^failed$|^opaque 0 $/, name);
  assert.doesNotMatch(readable ?? "", /smb_/);
  assert.equal(await keyCount(), keys);
  await opened.page.reload();
  await opened.page.locator("main#content").waitFor();
  assert.deepEqual(
    cookies.filter((cookie) => cookie.includes("flotilla_console")),
    [],
  );
});

test("the console is in no frame, and a page that opens it gets no hold of it", async () => {
  await using opened = await signedIn();
  const page = await opened.context.newPage();
  await page.goto(((await client.get(`/v1/machines/${id}`)).json as { readonly url: string }).url);
  await page.evaluate(
    `document.body.innerHTML = '<iframe src="${home}/console/"></iframe><iframe src="${home}/console/settings"></iframe>'`,
  );
  const framed = (): readonly string[] =>
    page
      .frames()
      .slice(1)
      .map((frame) => frame.url());
  await until(() => framed().length === 2 && framed().every((url) => url.startsWith("chrome-error:")), {
    what: "the frames to be refused",
  });
  const popup = page.waitForEvent("popup");
  await page.evaluate(`self.opened = open("${home}/console/")`);
  const tab = await popup;
  await tab.locator("main#content, main.sign-in").first().waitFor();
  assert.equal(await tab.evaluate("opener"), null, "the console does not know who opened it");
  await until(() => page.evaluate("opened.closed"), { what: "the opener to lose its hold" });
});

test("a page below the server's own address is sandboxed: it reads no answer and no cookie", async () => {
  await using opened = await signedIn();
  const keys = await keyCount();
  const page = await opened.context.newPage();
  const answer = await page.goto(`${home}/proxy/${id}/`);
  assert.match(answer?.headers()["content-security-policy"] ?? "", /^sandbox (?!.*allow-same-origin)/);
  assert.equal(await page.evaluate("origin"), "null");
  await assert.rejects(async () => page.evaluate("document.cookie"), /sandboxed/);
  const found = await page.evaluate(
    async (paths) =>
      await Promise.all(
        paths.map(
          async (path) =>
            await fetch(path, { credentials: "include" }).then(
              () => path,
              () => "",
            ),
        ),
      ),
    ["/v1/me", "/v1/machines", "/console/"].map((path) => home + path),
  );
  assert.deepEqual(found, ["", "", ""]);
  assert.equal(await keyCount(), keys);
  // What the guest sets is not of the console's name.
  assert.deepEqual(
    (await opened.context.cookies(home)).filter(({ value }) => value === "smb_made-up"),
    [],
  );
});

test("the cookie of a session opens neither the bridge nor another door to machines, also from the console's page", async () => {
  await using opened = await signedIn();
  const paths = [`/v1/machines/${id}/connect/80/`, `/v1/machines/${id}/connect/80`, "/metrics", "/v2/", "/mcp"];
  const answers = await opened.page.evaluate(
    async (each) =>
      await Promise.all(
        each.map(async (path) => {
          const answer = await fetch(path, { headers: { "x-flotilla-console": "1" } });
          return { path, status: answer.status, text: (await answer.text()).slice(0, 200) };
        }),
      ),
    paths,
  );
  for (const { path, status, text } of answers) {
    if (path.includes("/connect/")) assert.equal(status, 401, `${path}: ${text}`);
    assert.doesNotMatch(text, /hostile/, path);
  }
  assert.deepEqual(
    cookies.filter((cookie) => cookie.includes("flotilla_console")),
    [],
  );
});

test("the console's page may only run its own scripts, and asks no other host", async () => {
  await using opened = await signedIn();
  const { page } = opened;
  const other = home.replace("//localhost", "//other.localhost");
  await page.evaluate(`
    self.refused = [];
    document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
    for (const [name, fields] of [
      ["script", { textContent: "document.title = 'run'" }], ["script", { src: "${other}/x.js" }],
      ["img", { src: "${other}/x.png" }], ["iframe", { src: "${other}/" }],
    ]) document.body.append(Object.assign(document.createElement(name), fields));
    fetch("${other}/").catch(() => refused.push("fetch"));`);
  const refused = async (): Promise<readonly string[]> => await page.evaluate("refused");
  for (const directive of ["script-src-elem", "img-src", "frame-src", "connect-src", "fetch"])
    await until(async () => (await refused()).includes(directive), { what: `${directive} to be refused` });
  assert.notEqual(await page.title(), "run");
});
