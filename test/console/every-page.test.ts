/**
 * Every page of the console, as each kind of key sees it, with everything on it pressed once.
 *
 * Pressing changes nothing: what would write is answered with a refusal, which must be shown where it was
 * asked.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import type { Locator, Page } from "playwright-core";
import { type ConsolePage, openConsole, startBrowser } from "../support/console.ts";
import { FLEET_SETTINGS, fillFleet, pagesOf, pagesOfOwner } from "../support/console-fleet.ts";
import { startFlotilla } from "../support/flotilla.ts";

const flotilla = await startFlotilla({ nodes: 2, serverEnvironment: () => FLEET_SETTINGS });
after(() => flotilla[Symbol.asyncDispose]());
const fleet = await fillFleet(flotilla, { isHostile: true });
after(() => fleet[Symbol.asyncDispose]());
const browser = await startBrowser();
after(() => browser.close());

/** The app that fails makes machines again and again: one may be gone when the page reads it. */
const REPLACED = /status of 404 .*\/v1\/machines\/mach-\w+\)$/;

/** What a page must not show to a key that may open it. */
async function faultsOf({ page }: ConsolePage): Promise<readonly string[]> {
  const alerts = await page.getByRole("alert").allInnerTexts();
  const titles = await page.getByRole("heading", { level: 1 }).allInnerTexts();
  return [...alerts, ...titles.filter((title) => /failed|No such/.test(title))];
}

const ROLES: Readonly<Record<string, readonly string[]>> = {
  reader: ["machine:read"],
  operatorOfMachines: ["machine:read", "machine:create", "machine:delete"],
  typist: ["machine:read", "machine:exec", "machine:files"],
  deployer: ["app:write"],
  bookkeeper: ["billing:read", "usage:read"],
  keeper: ["keys:write", "audit:read"],
  receiver: ["webhook:write"],
  // It permits nothing.
  nothing: ["volume:read"],
};

test("each key is offered the pages that it may read, and no page of them is refused anything", async () => {
  const keys = new Map<string, string | undefined>([
    ["operator", undefined],
    ["owner", fleet.ownerKey],
  ]);
  for (const [role, scopes] of Object.entries(ROLES)) {
    const { json } = await flotilla.client().post("/v1/apikeys", { scopes, description: role });
    keys.set(role, json.key);
  }
  const found: string[] = [];
  for (const [role, key] of keys) {
    await using opened = await openConsole(flotilla, { browser, ...(key === undefined ? {} : { key }) });
    const { page } = opened;
    await opened.untilRead();
    const links = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
    for (const name of await links.allInnerTexts()) {
      await links.getByText(name, { exact: true }).click();
      await opened.untilRead();
      found.push(...(await faultsOf(opened)).map((fault) => `${role}, ${name}: ${fault}`));
    }
    const scopes = ROLES[role] ?? ["machine:read"];
    if (role !== "owner" && scopes.includes("machine:read")) {
      await opened.visit(`machines/${fleet.machines.get("notebook")}`);
      for (const tab of await page.getByRole("tab").all()) {
        await tab.click();
        await opened.untilRead();
      }
      found.push(...(await faultsOf(opened)).map((fault) => `${role}, a machine: ${fault}`));
    }
    found.push(
      ...opened
        .faults()
        .filter((fault) => !REPLACED.test(fault))
        .map((fault) => `${role}: ${fault}`),
    );
  }
  assert.deepEqual(found, []);
});

test("a page that a key may not read says so where it would be, and the page stays usable", async () => {
  const { json } = await flotilla.client().post("/v1/apikeys", { scopes: ["app:read"] });
  await using opened = await openConsole(flotilla, { browser, key: json.key });
  const { page } = opened;
  for (const place of [
    "machines",
    "nodes",
    "keys",
    "audit",
    "tenants",
    "webhooks",
    `machines/${fleet.machines.get("web-1")}`,
  ]) {
    await opened.open(place);
    await page.getByRole("alert").first().waitFor();
    assert.match(await page.getByRole("alert").first().innerText(), /scope/, place);
  }
  await page.getByRole("link", { name: "Apps" }).click();
  await page.getByRole("link", { name: "shop", exact: true }).waitFor();
  opened.check(/403/);
});

test("everything on every page can be pressed: no page fails, and what is refused is said where it was asked", async () => {
  await using opened = await openConsole(flotilla, { browser });
  const { page } = opened;
  await refuseWrites(page);
  const links = new Map<string, string>();
  const seen = new Set<string>();
  for (const place of pagesOf(fleet)) {
    const visit = (): Promise<void> => opened.visit(place);
    await visit();
    await collectLinks(page, links);
    // What is on every page is pressed on the first.
    await pressAll(opened, place === "" ? page.locator("body") : page.locator("main"), { visit, place, seen });
    opened.check(/409|nowhere|apps\/-\/plan/, REPLACED);
  }
  for (const link of links.values()) {
    await page.goto(link);
    await opened.untilRead();
    assert.deepEqual(
      (await faultsOf(opened)).filter((fault) => /failed|No such/.test(fault)),
      [],
      link,
    );
  }
  opened.check(/409/, REPLACED);
});

const REFUSED = "the test refuses what would write";

/** Answers each call that would change something as the server refuses. */
async function refuseWrites(page: Page): Promise<void> {
  await page.route("**/v1/**", async (route) => {
    const { pathname } = new URL(route.request().url());
    if (route.request().method() === "GET" || /\/(plan|placement)$/.test(pathname)) return await route.continue();
    return await route.fulfill({
      status: 409,
      json: { error: { code: "conflict", message: REFUSED, requestId: "none" }, message: REFUSED, code: "conflict" },
    });
  });
}

/** Internal addresses that the page links to, one of each kind; what leads elsewhere gives it no way back. */
async function collectLinks(page: Page, links: Map<string, string>): Promise<void> {
  for (const link of await page.locator("main a[href]").all()) {
    const href = await link.evaluate((each) => (each as unknown as { readonly href: string }).href);
    const { origin, pathname } = new URL(href);
    const isOwn = origin === new URL(page.url()).origin && !pathname.startsWith("/proxy/");
    if (isOwn && pathname.startsWith("/console/"))
      links.set(pathname.replaceAll(/[a-z]+-[0-9a-f]{32}|\d+/g, "#"), href.replace(/#.*/, ""));
    if (!isOwn) {
      assert.match(href, /^https?:\/\//);
      assert.match((await link.getAttribute("rel")) ?? "", /noopener/, href);
    }
  }
}

interface Pressing {
  readonly visit: () => Promise<void>;
  readonly place: string;
  /** What was pressed on another page. */
  readonly seen: Set<string>;
}

interface Control {
  readonly role: "button" | "tab" | "checkbox";
  readonly name: string;
}

/** Presses each button, tab and checkbox once; of those that differ in an id or a number, one. */
async function pressAll(opened: ConsolePage, scope: Locator, { visit, place, seen }: Pressing): Promise<void> {
  const { page } = opened;
  const kind = place.replace(/(mach|hook)-\w+/, "one").split("?", 1)[0] ?? "";
  for (const control of await controlsOf(scope)) {
    const known = `${kind} ${control.role} ${control.name.replaceAll(/\w*\d\w*|h{63}/g, "#")}`;
    if (seen.has(known) || /^Select (?!all)|^Sign out/.test(control.name)) continue;
    seen.add(known);
    const element = scope.getByRole(control.role, { name: control.name, exact: true }).first();
    if (!(await element.isVisible()) || !(await element.isEnabled())) continue;
    await element.click();
    await pressAbove(page, control);
    assert.equal(await page.getByRole("heading", { name: "This page failed" }).count(), 0, `${place}: ${known}`);
    if (!page.url().endsWith(place)) await visit().catch((error: Error) => assert.fail(`${known}: ${error.message}`));
  }
}

async function controlsOf(scope: Locator): Promise<readonly Control[]> {
  const found = await scope.locator("button, [role=tab], input[type=checkbox]").evaluateAll((elements) =>
    elements.map((each) => {
      const element = each as unknown as {
        getAttribute(name: string): string | null;
        readonly innerText: string;
        readonly tagName: string;
        readonly labels: ArrayLike<{ readonly innerText: string }> | null;
      };
      const text = element.tagName === "INPUT" ? (element.labels?.[0]?.innerText ?? "") : element.innerText;
      const role: "button" | "tab" | "checkbox" =
        element.getAttribute("role") === "tab" ? "tab" : element.tagName === "INPUT" ? "checkbox" : "button";
      return { role, name: element.getAttribute("aria-label") ?? text.trim() };
    }),
  );
  return found.filter(({ name }) => name !== "");
}

/** Not messages, which are dialogs to screen readers, and go by themselves. */
const ABOVE = ".sheet, .palette";

/** Closes the menu that has opened, or presses the main button of a dialog and closes that. */
async function pressAbove(page: Page, { name }: Control): Promise<void> {
  await settled(page);
  const menu = page.getByRole("menu");
  if ((await menu.count()) === 0) return await pressDialog(page, name);
  assert.ok((await page.getByRole("menuitem").count()) > 0, name);
  await page.keyboard.press("Escape");
  await menu.waitFor({ state: "detached" });
}

async function pressDialog(page: Page, name: string): Promise<void> {
  const dialog = page.locator(ABOVE).last();
  if ((await dialog.count()) === 0) return;
  const main = dialog.locator("button.main, button.danger").first();
  if ((await main.count()) > 0 && (await main.isEnabled())) {
    await main.click();
    // Refused by the server, or before it was asked, in the dialog itself.
    const refused = dialog.getByText(REFUSED).or(dialog.locator("[aria-invalid=true], :invalid, [role=alert]"));
    await refused
      .first()
      .waitFor({ timeout: 10_000 })
      .catch(async () => assert.fail(`${name}: ${await dialog.innerText()}`));
  }
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" }).catch(() => assert.fail(`${name}: it does not close`));
}

/** What opens is in the page after two frames. */
const settled = (page: Page): Promise<unknown> =>
  page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))");

test("every page has no violation of axe in dark, light and on a phone, prints no error and is not too wide", async () => {
  const found: string[] = [];
  const roles = [
    { options: {}, pages: pagesOf(fleet) },
    { options: { key: fleet.ownerKey }, pages: pagesOfOwner(fleet) },
  ];
  // What differs between the themes is colours; on a phone, what fits.
  const looks = [
    { look: {}, rules: [] },
    { look: { isLight: true }, rules: ["color-contrast", "link-in-text-block"] },
    { look: { width: 390 }, rules: null },
  ];
  for (const { options, pages } of roles)
    for (const { look, rules } of looks) {
      await using opened = await openConsole(flotilla, { ...options, ...look, browser });
      for (const place of pages) {
        await opened.visit(place);
        const where = `${place} ${JSON.stringify(look)}`;
        for (const violation of rules === null ? [] : await opened.violations(rules))
          found.push(`${where}: ${violation}`);
        const wide = await opened.page.evaluate("document.documentElement.scrollWidth - innerWidth");
        if (Number(wide) > 0) found.push(`${where}: the page is ${String(wide)} pixels too wide`);
        opened.check(/nowhere/, REPLACED);
      }
    }
  assert.deepEqual(found, []);
});
