/**
 * The printed part of the SDK: as fresh as the contract, complete, and free of anything but itself.
 *
 * Always: a new endpoint fails here until `npm run golden` has given it a method.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { endpointList } from "@flotilla/contract/endpoints";
import { generateAdvice, generateSdk } from "../../scripts/generate-sdk.ts";
import { Flotilla } from "../src/client.ts";

test("the checked-in methods and types are what the contract prints; `npm run golden` refreshes them", () => {
  const printed = new URL("../src/generated.ts", import.meta.url);
  assert.equal(readFileSync(printed, "utf8"), generateSdk());
  const advice = new URL("../src/advice.ts", import.meta.url);
  assert.equal(readFileSync(advice, "utf8"), generateAdvice());
});

test("every endpoint has a method of its name that sends its method and path", async () => {
  for (const [name, endpoint] of endpointList) {
    let sent = "";
    const flotilla = new Flotilla({
      url: "http://flotilla.invalid",
      fetch: async (url, init) => {
        sent = `${init.method} ${new URL(url).pathname}`;
        return new Response("{}");
      },
    });
    const method = (flotilla as unknown as Record<string, ((...all: unknown[]) => unknown) | undefined>)[name];
    assert.equal(typeof method, "function", `${name} has no method`);
    if (endpoint.isUpgrade) continue;
    const parameters = [...endpoint.path.matchAll(/\{(\w+)/g)].map(([, word]) => word);
    await method?.call(flotilla, ...parameters, {});
    assert.equal(sent, `${endpoint.method} ${endpoint.path.replace(/\{(\w+)(\.\.\.)?\}/g, "$1")}`, name);
  }
});

test("the SDK imports nothing outside its folder", () => {
  const folder = new URL("../src/", import.meta.url);
  for (const file of readdirSync(folder).filter((name) => !name.endsWith(".test.ts"))) {
    for (const [, isType, from] of readFileSync(new URL(file, folder), "utf8").matchAll(
      /(type [^"]*)?from "([^"]+)"/g,
    )) {
      // Types of Node are erased.
      if (isType === undefined || !from?.startsWith("node:"))
        assert.match(from ?? "", /^\.\/[a-z-]+\.ts$/, `${file} imports ${from}`);
    }
  }
});
