// Loads the checkout of the emulated host, whose types were stripped when it was made, without Node's own stripping.
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";

registerHooks({
  load: (url, context, next) =>
    url.endsWith(".ts")
      ? { format: "module", shortCircuit: true, source: readFileSync(new URL(url), "utf8") }
      : next(url, context),
});
