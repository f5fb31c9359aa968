/**
 * Tools for packages of machines, and for the long work that makes them.
 */
import { z } from "zod";
import { findMachine } from "../../machine/find.ts";
import { json, text } from "../results.ts";
import { machineInput, type Tool, tool } from "../tool.ts";

const LISTED_MAX = 200;

const listPackages = tool({
  name: "list_packages",
  title: "List packages",
  description: "Lists packaged machines, from which create_machine makes others with package: true.",
  needs: ["machine:read"],
  input: z.object({}),
  effect: "reads",
  run: async (_input, { session, signal }) => {
    const packages = await session.flotilla.listPackages({ query: { limit: LISTED_MAX }, signal });
    const more = packages.length < LISTED_MAX ? "" : `\n[the first ${LISTED_MAX}; there may be more]`;
    return json(packages, more);
  },
});

const packageMachine = tool({
  name: "package_machine",
  title: "Package a machine",
  description:
    "Packages a stopped machine's disk, so that machines can be made from it on any node. The answer is the package, " +
    "or an operation that takes longer: get_operation says when it has ended.",
  needs: ["machine:create", "machine:read"],
  input: z.object({
    machine: machineInput,
    name: z.string().max(128).optional().describe("the package's name; default: the machine's"),
    tag: z.string().max(128).optional().describe("default: latest"),
    includeEnv: z.boolean().default(false).describe("whether the machine's environment is in it"),
  }),
  effect: "makes",
  run: async ({ machine, ...body }, { session, signal }) => {
    const { id } = await findMachine(session.flotilla, machine);
    return json(await session.flotilla.exportMachine(id, body, { signal }));
  },
});

const deletePackage = tool({
  name: "delete_package",
  title: "Delete a package",
  description: "Deletes a tag of a package, or with a digest the package and all of its tags, for good.",
  needs: ["machine:delete", "machine:read"],
  input: z.object({ reference: z.string().min(1).max(512).describe("such as web:1 or web@sha256:…") }),
  effect: "destroys",
  question: async ({ reference }) => ({
    text: `Delete the package ${JSON.stringify(reference)}?`,
    target: reference,
  }),
  run: async ({ reference }, { session, signal }) => {
    await session.flotilla.deletePackage({ query: { reference }, signal });
    return text(`deleted ${JSON.stringify(reference)}`);
  },
});

const getOperation = tool({
  name: "get_operation",
  title: "Show an operation",
  description: "Shows long work, such as a package that is made or an app that is deployed: its steps and its end.",
  needs: [],
  input: z.object({ operation: z.string().min(1).max(64).describe("its id, which begins with op-") }),
  effect: "reads",
  run: async ({ operation }, { session, signal }) => json(await session.flotilla.getOperation(operation, { signal })),
});

export const packageTools: readonly Tool[] = [listPackages, packageMachine, deletePackage, getOperation];
