/**
 * Pictures of every page of the console, in dark, light and at the width of a phone, as the operator and as a
 * tenant's owner see it: `npm run console:demo -- --hostile --pictures DIRECTORY`.
 *
 * Always: they are written outside of the repository.
 */
import { mkdir } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { type ConsolePage, openConsole, startBrowser } from "../support/console.ts";
import { type Fleet, pagesOf, pagesOfOwner } from "../support/console-fleet.ts";
import type { Flotilla } from "../support/flotilla.ts";

const ROOT = join(import.meta.dirname, "../..");
const LOOKS = { dark: {}, light: { isLight: true }, phone: { width: 390 } } as const;

/** Takes them of the pages whose addresses match. */
export async function takePictures(flotilla: Flotilla, fleet: Fleet, to: string, only: RegExp): Promise<void> {
  const directory = resolve(to);
  if (!relative(ROOT, directory).startsWith("..")) throw new Error("--pictures: a directory outside of the repository");
  await mkdir(directory, { recursive: true });
  const roles = [
    { role: "operator", options: {}, pages: pagesOf(fleet) },
    { role: "owner", options: { key: fleet.ownerKey }, pages: pagesOfOwner(fleet) },
  ];
  const browser = await startBrowser();
  try {
    for (const { role, options, pages } of roles)
      for (const [look, looks] of Object.entries(LOOKS)) {
        await using opened = await openConsole(flotilla, { ...options, ...looks, browser });
        for (const page of pages.filter((each) => only.test(each))) {
          await opened.open(page);
          await untilShown(opened);
          await opened.page.screenshot({ path: join(directory, `${role}-${nameOf(fleet, page)}-${look}.png`) });
        }
      }
  } finally {
    await browser.close();
  }
}

/** The name of a page's picture, which is the same in every run. */
function nameOf(fleet: Fleet, page: string): string {
  let name = page;
  for (const [text, id] of fleet.machines) name = name.replace(id, text);
  for (const [at, id] of fleet.webhooks.entries()) name = name.replace(id, `${at}`);
  return name.replaceAll(/[^\w-]+/g, "_") || "overview";
}

async function untilShown(opened: ConsolePage): Promise<void> {
  await opened.untilRead();
  await opened.page.getByText("Live", { exact: true }).waitFor({ state: "attached" });
}
