/**
 * The console's view of a log at 5,000 lines a second, in a browser: how long the page takes to show what a
 * key or a click has changed, and its longest frame, until 200,000 lines were written.
 *
 * The writer is a machine of the fake driver behind a real node agent and server. Server, node and browser
 * share the host's processors, so a busy host makes every figure worse.
 */
import { chromium, type Page } from "playwright-core";
import { monotonic, sleep } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

const LINES = 200_000;
const RATE = 5_000;
const BROWSER = "/usr/bin/chromium-headless-shell";
const DEADLINE_MS = 300_000;

/** Runs in the page. */
const MEASURE = `
  globalThis.measured = { frames: [], events: [], heap: 0 };
  let last = performance.now();
  const frame = (at) => { measured.frames.push(at - last); last = at; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
  new PerformanceObserver((list) => {
    for (const { duration, interactionId } of list.getEntries()) if (interactionId) measured.events.push(duration);
  }).observe({ type: "event", durationThreshold: 16 });
  setInterval(() => { measured.heap = Math.max(measured.heap, performance.memory.usedJSHeapSize); }, 500);
`;

interface Measured {
  readonly frames: readonly number[];
  readonly events: readonly number[];
  readonly heap: number;
}

/** `n`: rounds of interactions. */
export async function consoleLogs(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "fake" });
  flotilla.requireOwn();
  await flotilla.liftLimits();
  const line = "2026-01-01 GET /items/# 200";
  const command = ["sh", "-c", `lines ${LINES} ${RATE} '${line}'; sleep 100000`];
  const { id } = await flotilla.client.createMachine({ source: { type: "image", reference: IMAGE }, command });
  const browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
    const { url } = flotilla.access;
    await page.goto(url + (await flotilla.client.createConsoleLink()).path);
    await page.locator("main#content").waitFor();
    await page.goto(`${url}/console/machines/${id}/logs`);
    await page.getByLabel("Log", { exact: true }).waitFor();
    await page.evaluate(MEASURE);
    await flotilla.client.startMachine(id);
    return await measure(page, n);
  } finally {
    await browser.close();
  }
}

async function measure(page: Page, n: number): Promise<Finding> {
  await untilShown(page, RATE);
  for (let round = 0; round < n && (await lastShown(page)) < LINES - RATE; round++) await interact(page);
  await untilShown(page, LINES - 1);
  const { frames, events, heap } = (await page.evaluate("measured")) as Measured;
  const [shown, acted] = [summarize(frames.slice(2)), summarize(events.length === 0 ? [0] : events)];
  return {
    name: "console-logs",
    series: [
      { what: "from a key or a click to the next paint", summary: acted },
      { what: "between two frames", summary: shown },
    ],
    reaches: [
      atMost("from a key or a click to the next paint, p99", acted.p99Ms, 100),
      atMost("longest time between two frames", shown.maxMs, 100),
    ],
    setting: { lines: LINES, "lines a second": RATE, rounds: n },
    notes: [`the page's scripts used ${Math.round(heap / 1e6)} MB at most`],
  };
}

async function untilShown(page: Page, line: number): Promise<void> {
  const deadline = monotonic() + DEADLINE_MS;
  while ((await lastShown(page)) < line) {
    if (monotonic() > deadline) throw new Error(`line ${line} was not shown`);
    await sleep(500);
  }
}

async function lastShown(page: Page): Promise<number> {
  const texts = await page.locator(".log-line").allInnerTexts();
  return Math.max(-1, ...texts.flatMap((line) => /items\/(\d+)/.exec(line)?.slice(1).map(Number) ?? []));
}

/** What a reader does while lines come: shows times, searches, scrolls up, and follows again. */
async function interact(page: Page): Promise<void> {
  await page.getByLabel("Times").click();
  const search = page.getByLabel("Find in the log");
  await search.pressSequentially("items/1");
  await search.fill("");
  await page.getByLabel("Log", { exact: true }).hover();
  await page.mouse.wheel(0, -2_000);
  await page.getByRole("button", { name: "Follow" }).click();
  await page.getByText("Following").waitFor();
}
