/**
 * The verbs of `flotilla image`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addImageCommands(tree: Tree, root: Command): void {
  const image = addNoun(root, "image", "see, fetch, make, import and remove images");
  addVerb(tree, image, { usage: "ls", summary: "list the images that nodes have", load: () => import("./ls.ts") });
  addVerb(tree, image, {
    usage: "pull <reference>",
    summary: "fetch an image to all nodes before a machine needs it; asks its registry even if one is cached",
    options: (command) => command.option("--node <id>", "fetch to this node only"),
    load: () => import("./pull.ts"),
  });
  addVerb(tree, image, {
    usage: "make-local <kind>",
    summary:
      "make an image from this machine's Debian packages: python, node, debian, e2b-base or e2b-code-interpreter (needs an admin key)",
    options: (command) =>
      command.option("--name <reference>", "the image's name (default: local/<kind>)").addHelpText(
        "after",
        `
Needs Debian's packages, but no image registry. The image is then used like any other:
  $ flotilla image make-local python
  $ flotilla machine create local/python --name py --start`,
      ),
    load: () => import("./make-local.ts"),
  });
  addVerb(tree, image, {
    usage: "import <file> <reference>",
    summary:
      "give an archive (OCI layout, docker save, root file system tar) a name of the form local/… (needs an admin key)",
    options: (command) => command.option("--node <id>", "import to this node only (needed when there are several)"),
    load: () => import("./import.ts"),
  });
  addVerb(tree, image, {
    usage: "rm <reference...>",
    summary: "remove local images; those of registries are removed when room is needed (needs an admin key)",
    options: (command) => command.option("--node <id>", "remove from this node only"),
    load: () => import("./rm.ts"),
  });
}
