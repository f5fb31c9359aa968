/**
 * Bugs that a simulation must find: each replaces a piece of the shipped source when it is imported.
 */
import { registerHooks } from "node:module";

interface Bug {
  /** The end of the file's path. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

export const BUGS: Readonly<Record<string, Bug>> = {
  "the end of a run is not recorded": {
    file: "node/src/machines/run-journal.ts",
    from: "if (known === undefined || known.endedAt !== null) return this.saved();",
    to: "if (known !== undefined) return this.saved();",
  },
  "a machine that is started while it moves takes no room": {
    file: "server/src/machines/store.ts",
    from: "ELSE nodes_admit_start_in_move(",
    to: "ELSE true OR nodes_admit_start_in_move(",
  },
  "a stop gives away what its node may have started": {
    file: "server/src/machines/change.ts",
    from: "const mayRun = machine.moveId === null && isActive(machine) && !isActive(stopped);",
    to: "const mayRun = false;",
  },
  "a drain is begun in two writes": {
    file: "server/src/nodes/drain.ts",
    from: "const begun = await context.db.transaction(async (transaction) => {",
    to: "const begun = await (async (work: any) => await work(context.db))(async (transaction: any) => {",
  },
  "a run of an earlier agent is not ended": {
    file: "node/src/machines/actions/end.ts",
    from: "if (!wasWritten && !held.isInherited) return null;",
    to: "if (!wasWritten) return null;",
  },
  "copies are forgotten when their node does not answer": {
    file: "server/src/reconcilers/copies.ts",
    from: "const copies = await listRemovableCopies(services.context.db, COPIES_PER_ACTIVATION_MAX);",
    to: "const copies = await listRemovableCopies(services.context.db, 0);",
  },
};

/** Plants a bug in what is imported from now on. The process fails when its source is not found. */
export function plant(name: string): void {
  const bug = BUGS[name];
  if (bug === undefined) throw new Error(`no bug is called ${name}`);
  let isPlanted = false;
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      if (!url.endsWith(`/${bug.file}`)) return loaded;
      const source = Buffer.from(loaded.source as Uint8Array).toString();
      if (source.split(bug.from).length !== 2) throw new Error(`${bug.file} does not have once: ${bug.from}`);
      isPlanted = true;
      return { ...loaded, source: source.replace(bug.from, () => bug.to) };
    },
  });
  process.on("exit", () => {
    if (!isPlanted) process.exitCode = 1;
  });
}
