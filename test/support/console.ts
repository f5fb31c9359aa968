/**
 * The console in a headless Chromium, driven by Playwright's library, for tests of pages.
 *
 *     await using console = await openConsole(flotilla);
 *     await console.page.getByRole("link", { name: "Machines" }).click();
 *
 * Always: a page that fails, prints an error or asks another host fails the test at the end (`check`). The
 * browser is Debian's, without its sandbox, which refuses root; its pages are those of the tests.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import type { Flotilla } from "./flotilla.ts";
import { until } from "./until.ts";

const PROGRAM = "/usr/bin/chromium-headless-shell";
const PATIENT_MS = 30_000;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export interface ConsoleOptions {
  /** The API key of the session, instead of the admin's. */
  readonly key?: string;
  readonly isLight?: boolean;
  readonly width?: number;
  /** A browser that runs already, and that stays; default: its own. */
  readonly browser?: Browser;
}

export class ConsolePage implements AsyncDisposable {
  readonly page: Page;
  readonly context: BrowserContext;
  readonly url: string;
  readonly #close: () => Promise<void>;
  readonly #faults: string[] = [];

  constructor(close: () => Promise<void>, context: BrowserContext, page: Page, url: string) {
    this.#close = close;
    this.context = context;
    this.page = page;
    this.url = url;
    page.on("pageerror", (error) => this.#faults.push(`failed: ${error.stack}`));
    page.on("console", (message) => {
      // A network interface of the host that comes or goes ends requests, which the page makes again.
      const isOfHost = message.text().includes("ERR_NETWORK_CHANGED");
      if (message.type() === "error" && !isOfHost) this.#faults.push(`${message.text()} (${message.location().url})`);
    });
    page.on("request", (request) => {
      const asked = new URL(request.url());
      if (/^https?:$/.test(asked.protocol) && asked.origin !== url) this.#faults.push(`asked ${request.url()}`);
    });
  }

  /** Opens a path of the console. */
  async open(path: string): Promise<void> {
    const url = `${this.url}/console/${path}`;
    await this.page.goto(url).catch(async (error: Error) => {
      // An interface of the host has come or gone.
      if (!error.message.includes("ERR_NETWORK_CHANGED")) throw error;
      await this.page.goto(url);
    });
  }

  /** Opens a path of the console, and waits until everything that it shows has been read. */
  async visit(path: string): Promise<void> {
    await this.open(path);
    await this.untilRead();
  }

  /** Waits until the page shows its title, and nothing that is being read. */
  async untilRead(): Promise<void> {
    const title = this.page.getByRole("heading", { level: 1 }).first();
    await title.waitFor().catch(async () => {
      throw new Error(`${this.page.url()} has no title: ${await this.page.locator("body").innerText()}`);
    });
    const isRead = async (): Promise<boolean> => (await this.page.locator(".loading").count()) === 0;
    await until(isRead, { what: `${this.page.url()} to be read` });
  }

  /** Throws what the page has printed as an error since the last call, except what the test expects. */
  check(...expected: readonly RegExp[]): void {
    assert.deepEqual(
      this.faults().filter((fault) => !expected.some((each) => each.test(fault))),
      [],
    );
  }

  /** What the page has printed as an error since the last call. */
  faults(): readonly string[] {
    return this.#faults.splice(0);
  }

  /** What axe finds on the page, as it is now, by the named rules; by all, if none is named. */
  async violations(rules: readonly string[] = []): Promise<readonly string[]> {
    // As a script of the debugger, which the content security policy of the page does not concern.
    await this.page.evaluate(AXE);
    return await this.page.evaluate(
      async (values) => {
        const { axe } = globalThis as unknown as {
          axe: { run(options: object): Promise<{ violations: AxeViolation[] }> };
        };
        interface AxeViolation {
          readonly id: string;
          readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[];
        }
        const { violations } = await axe.run(values.length === 0 ? {} : { runOnly: { type: "rule", values } });
        return violations.flatMap(({ id, nodes }) =>
          nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 300)}: ${failureSummary}`),
        );
      },
      [...rules],
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close();
  }
}

/** A browser that is signed in through a one-time link. */
export async function openConsole(flotilla: Flotilla, options: ConsoleOptions = {}): Promise<ConsolePage> {
  const url = flotilla.urls[0] ?? "";
  const client = options.key === undefined ? flotilla.client() : flotilla.client().withKey(options.key);
  const made = await client.post("/v1/console/links");
  assert.equal(made.status, 201, made.text);
  const opened = await openBrowser(url, options);
  await opened.page.goto(url + made.json.path);
  await opened.page.locator("main#content").waitFor();
  return opened;
}

/** A browser that is not signed in. */
export async function openBrowser(
  url: string,
  { isLight = false, width = 1280, browser: given }: ConsoleOptions = {},
): Promise<ConsolePage> {
  const browser = given ?? (await startBrowser());
  const context = await browser.newContext({
    viewport: { width, height: 860 },
    colorScheme: isLight ? "light" : "dark",
    permissions: ["clipboard-read", "clipboard-write"],
  });
  context.setDefaultTimeout(PATIENT_MS);
  const close = (): Promise<void> => (given === undefined ? browser.close() : context.close());
  return new ConsolePage(close, context, await context.newPage(), url);
}

/** A browser for all tests of a file, which closes it. */
export const startBrowser = (): Promise<Browser> =>
  chromium.launch({ executablePath: PROGRAM, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
