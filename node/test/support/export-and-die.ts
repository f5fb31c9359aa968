/**
 * A node agent reduced to its exports: exports machine A of a directory, so that a test can kill it.
 *
 *     node export-and-die.ts DIRECTORY PORT
 */
import { callRegistry } from "../../../test/support/faulty-uploads.ts";
import { startPackageNode } from "./packages.ts";

const [directory = "", port = ""] = process.argv.slice(2);
await using node = await startPackageNode(callRegistry(Number(port)), {}, directory);
await node.export("a", { tag: "killed" });
