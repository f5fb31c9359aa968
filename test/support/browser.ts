/**
 * A headless Chromium for tests: opens addresses and returns what a user would see.
 *
 * Always: its profile is a temporary directory that is removed with it, so nothing of one browser is seen by
 * the next; it visits only the given addresses. It is driven over its DevTools socket, of which this uses
 * five commands. It runs without its own sandbox, which refuses root; its pages are those of the tests.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WebSocket } from "ws";
import { until } from "./until.ts";

const PROGRAM = "chromium-headless-shell";
const PATIENT_MS = 60_000;

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

export class Browser implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #profile: string;
  readonly #socket: WebSocket;
  readonly #answers = new Map<number, PromiseWithResolvers<Record<string, unknown>>>();
  #session = "";
  #sent = 0;
  #loads = 0;

  private constructor(child: ChildProcess, profile: string, socket: WebSocket) {
    this.#child = child;
    this.#profile = profile;
    this.#socket = socket;
    socket.on("message", (data: Buffer) => this.#onMessage(JSON.parse(data.toString()) as Message));
  }

  static async start(): Promise<Browser> {
    const profile = mkdtempSync(join(tmpdir(), "flotilla-browser-"));
    const options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"];
    const child = spawn(PROGRAM, [...options, `--user-data-dir=${profile}`, "about:blank"], {
      stdio: ["ignore", "ignore", "pipe"],
      detached: true,
    });
    let said = "";
    child.stderr?.on("data", (chunk: Buffer) => (said += chunk));
    child.on("error", (error) => (said += String(error)));
    const address = (): string | undefined => /DevTools listening on (ws:\S+)/.exec(said)?.[1];
    const url = await until(address, { what: `${PROGRAM} (${said})`, deadlineMs: PATIENT_MS });
    const socket = new WebSocket(url);
    await once(socket, "open");
    const browser = new Browser(child, profile, socket);
    const { targetId } = await browser.#ask("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await browser.#ask("Target.attachToTarget", { targetId, flatten: true });
    browser.#session = String(sessionId);
    await browser.#ask("Page.enable", {});
    await browser.#ask("Network.enable", {});
    return browser;
  }

  /** Opens an address, with these headers in every request, and waits until the page is loaded. */
  async open(url: string, headers: Readonly<Record<string, string>> = {}): Promise<void> {
    await this.#ask("Network.setExtraHTTPHeaders", { headers });
    const before = this.#loads;
    const { errorText } = await this.#ask("Page.navigate", { url });
    if (errorText !== undefined) throw new Error(`${url} was not opened: ${JSON.stringify(errorText)}`);
    await until(() => this.#loads > before, { what: `the page at ${url}`, deadlineMs: PATIENT_MS });
  }

  /** Evaluates an expression in the page. */
  async evaluate(expression: string): Promise<unknown> {
    const { result } = await this.#ask("Runtime.evaluate", { expression, awaitPromise: true });
    return (result as { readonly value?: unknown }).value;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
    const isGone = this.#child.exitCode !== null || this.#child.signalCode !== null;
    const gone = isGone ? undefined : once(this.#child, "exit");
    // Its child processes are in its group.
    if (this.#child.pid !== undefined) process.kill(-this.#child.pid, "SIGKILL");
    await gone;
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }

  #ask(method: string, params: object): Promise<Record<string, unknown>> {
    this.#sent += 1;
    const id = this.#sent;
    const answer = Promise.withResolvers<Record<string, unknown>>();
    this.#answers.set(id, answer);
    this.#socket.send(
      JSON.stringify({ id, method, params, ...(this.#session === "" ? {} : { sessionId: this.#session }) }),
    );
    return answer.promise;
  }

  #onMessage({ id, method, result, error }: Message): void {
    if (method === "Page.loadEventFired") this.#loads += 1;
    if (id === undefined) return;
    const answer = this.#answers.get(id);
    this.#answers.delete(id);
    if (error !== undefined) answer?.reject(new Error(error.message));
    else answer?.resolve(result ?? {});
  }
}
