/**
 * The database of simulated servers: the shipped statements on a real PostgreSQL, over one connection, one at
 * a time.
 *
 * Instead of db/postgres.ts and db/listener.ts, whose pool, sockets and timers are the system's. A statement
 * takes effect at one moment of virtual time and is answered at a later one; the server may die before,
 * between or after. A transaction is one unit: no statement of another server happens within it.
 *
 * Rows of a statement that asks for no order come in one that follows from their content, since PostgreSQL
 * promises none.
 */
import { errorOf } from "@flotilla/base/errors";
import pg from "pg";
import {
  type Channel,
  type Database,
  DatabaseUnavailable,
  type Queryable,
  type Statement,
} from "../../server/src/db/database.ts";
import type { ConnectionOptions } from "../../server/src/db/hosts.ts";
import { DATABASE_NOW, type Notice } from "./watch.ts";
import type { Program, World } from "./world.ts";

const BIGINT_OID = 20;
const types = {
  getTypeParser: ((oid: number, format?: "text" | "binary") =>
    oid === BIGINT_OID ? Number : (pg.types.getTypeParser(oid, format) as unknown)) as typeof pg.types.getTypeParser,
};

/** What is dated by the clock of the database is dated by the virtual one (watch.ts). */
const DATED = /\bnow\(\)/;

/** Tables whose rows a seed never changes. */
const KEPT = new Set(["schema_migrations"]);

/** Rows that were deleted are removed after so many seeds: each time plans are made again. */
const SEEDS_PER_VACUUM = 25;

/** One connection for all seeds of this process. */
export class RealDatabase {
  readonly #client: pg.Client;
  /**
   * Empties the tables, without their triggers: a session that begins or ends to do without them discards its
   * plans.
   */
  readonly #emptier: pg.Client;
  readonly #names = new Map<string, string>();
  #reset = "";
  #resets = 0;
  /**
   * Called for what a statement reports, when it has ended. A statement that changes several rows reports in
   * the order of their places in the table, which earlier seeds have a part in: here it is that of the texts.
   */
  onNotice: (text: string) => void = () => undefined;
  #notices: string[] = [];
  /** The present, in epoch milliseconds. */
  clock: () => number = () => 0;

  private constructor(client: pg.Client, emptier: pg.Client) {
    this.#client = client;
    this.#emptier = emptier;
    client.on("notice", ({ message }) => this.#notices.push(message ?? ""));
  }

  static async open(connection: ConnectionOptions): Promise<RealDatabase> {
    const client = new pg.Client({ ...connection, types });
    await client.connect();
    await client.query(
      "SET plan_cache_mode = force_generic_plan; SET synchronous_commit = off; SET jit = off; SET search_path = public, pg_catalog",
    );
    const emptier = new pg.Client({ ...connection, types });
    await emptier.connect();
    await emptier.query("SET session_replication_role = replica; SET synchronous_commit = off; SET jit = off");
    return new RealDatabase(client, emptier);
  }

  async run<Row extends object>({ text, values }: Statement): Promise<pg.QueryResult<Row>> {
    let name = this.#names.get(text);
    if (name === undefined) {
      name = `s${this.#names.size}`;
      this.#names.set(text, name);
    }
    try {
      if (DATED.test(text)) await this.#client.query(`SET ${DATABASE_NOW} = '${this.clock() / 1000}'`);
      return await this.#client.query<Row>({ name, text, values: [...values] });
    } finally {
      for (const notice of this.#notices.splice(0).sort()) this.onNotice(notice);
    }
  }

  async query<Row extends object>(text: string): Promise<readonly Row[]> {
    return (await this.#client.query<Row>(text)).rows;
  }

  /** What there is now is what every seed begins with, also in copies of this database. */
  async keepAsBeginning(): Promise<void> {
    await this.query("CREATE SCHEMA beginning");
    for (const { name, columns } of await this.#tables())
      await this.query(`CREATE TABLE beginning.${name} AS SELECT ${columns} FROM public.${name}`);
  }

  /** Reads what every seed begins with. */
  async findBeginning(): Promise<void> {
    const statements: string[] = [];
    for (const { name, columns } of await this.#tables()) {
      statements.push(`DELETE FROM public.${name}`);
      const [row] = await this.query<{ count: number }>(`SELECT count(*)::int AS count FROM beginning.${name}`);
      if (row?.count === 0) continue;
      const values = `SELECT ${columns} FROM beginning.${name}`;
      statements.push(`INSERT INTO public.${name} (${columns}) OVERRIDING SYSTEM VALUE ${values}`);
    }
    statements.push("SELECT setval(seqrelid::regclass, 1000000) FROM pg_sequence");
    this.#reset = statements.join("; ");
  }

  async #tables(): Promise<readonly { readonly name: string; readonly columns: string }[]> {
    const tables = await this.query<{ name: string; columns: string }>(`
      SELECT c.relname AS name, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
      WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' GROUP BY c.relname ORDER BY c.relname`);
    return tables.filter(({ name }) => !KEPT.has(name));
  }

  async reset(): Promise<void> {
    await this.#client.query("ROLLBACK");
    await this.#emptier.query(this.#reset);
    this.#resets += 1;
    // Alone, because it cannot be in a transaction with other statements. A table that has become empty
    // becomes one of no pages.
    if (this.#resets % SEEDS_PER_VACUUM === 0) await this.#emptier.query("VACUUM");
  }

  async close(): Promise<void> {
    await this.#emptier.end();
    await this.#client.end();
  }
}

/** The way of all servers to the database. */
export class Databases {
  readonly real: RealDatabase;
  readonly world: World;
  readonly connections = new Set<Connection>();
  /** How long a statement takes at most, one way, in milliseconds. */
  latencyMs = 0.6;
  /** The probability that a statement is answered with a lost connection. */
  losing = 0;
  /** The probability that a notification does not arrive. */
  deaf = 0;
  statements = 0;
  /** Called for what the database reports of a statement, with the server of that. */
  onNotice: (notice: Notice, server: Program | null) => void = () => undefined;
  /** Whose statement happens now. */
  acting: Program | null = null;
  /** Whose transaction is open. */
  #holder: Connection | null = null;
  /** Statements that have arrived and wait for its end. */
  #waiting: (() => void)[] = [];

  constructor(world: World, real: RealDatabase) {
    this.world = world;
    this.real = real;
    real.clock = () => world.toEpoch(world.now);
    real.onNotice = (text) => {
      if (text.startsWith("{")) this.onNotice(JSON.parse(text) as Notice, this.acting);
    };
  }

  /** Whether a statement of this server may happen now. */
  admits(connection: Connection, isInTransaction: boolean): boolean {
    return this.#holder === null || (isInTransaction && this.#holder === connection);
  }

  /** Calls back when the open transaction has ended. */
  await(retry: () => void): void {
    this.#waiting.push(retry);
  }

  hold(connection: Connection): void {
    this.#holder = connection;
  }

  isHeldBy(connection: Connection): boolean {
    return this.#holder === connection;
  }

  release(): void {
    this.#holder = null;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const retry of waiting) retry();
  }

  /** Runs what the simulation itself reads and changes: not an event. */
  async look<Row extends object>(text: string): Promise<readonly Row[]> {
    return (await this.real.run<Row>({ text, values: [] })).rows;
  }
}

/** A server's Database. */
export class Connection implements Database {
  readonly #shared: Databases;
  readonly #program: Program;
  readonly #listeners = new Map<Channel, Set<{ onPayload(payload: string): void; onGap(): void }>>();
  #isListening = false;
  #transacting: Promise<void> = Promise.resolve();

  constructor(shared: Databases, program: Program) {
    this.#shared = shared;
    this.#program = program;
    shared.connections.add(this);
    program.onKill(() => {
      shared.connections.delete(this);
      // The database ends the transaction of a server that has died.
      if (shared.isHeldBy(this)) shared.world.after(1, null, () => this.#end("ROLLBACK"));
    });
  }

  async query<Row extends object>(statement: Statement): Promise<readonly Row[]> {
    return (await this.#statement<Row>(statement)).rows;
  }

  async queryOne<Row extends object>(statement: Statement): Promise<Row | undefined> {
    return (await this.#statement<Row>(statement)).rows[0];
  }

  async execute(statement: Statement): Promise<number> {
    return (await this.#statement(statement)).rowCount ?? 0;
  }

  /** A server has one transaction at a time here; further ones wait for it. */
  async transaction<T>(work: (transaction: Queryable) => Promise<T>): Promise<T> {
    const { real } = this.#shared;
    const before = this.#transacting;
    const turn = Promise.withResolvers<void>();
    this.#transacting = turn.promise;
    await before;
    try {
      await this.#event(() => {
        this.#shared.hold(this);
        return real.query("BEGIN");
      });
      const run = <Row extends object>(statement: Statement) => this.#statement<Row>(statement, true);
      const result = await work({
        query: async <Row extends object>(statement: Statement) => (await run<Row>(statement)).rows,
        queryOne: async <Row extends object>(statement: Statement) => (await run<Row>(statement)).rows[0],
        execute: async (statement) => (await run(statement)).rowCount ?? 0,
      });
      await this.#event(() => this.#end("COMMIT"), true);
      return result;
    } catch (error) {
      if (this.#shared.isHeldBy(this)) await this.#event(() => this.#end("ROLLBACK"), true);
      throw error;
    } finally {
      turn.resolve();
    }
  }

  async #end(how: "COMMIT" | "ROLLBACK"): Promise<void> {
    await this.#shared.real.query(how);
    this.#shared.release();
  }

  async notify(channel: Channel, payload: string): Promise<void> {
    this.#deliver(channel, payload);
    const { world, connections, deaf } = this.#shared;
    for (const other of connections) {
      if (other === this || !other.#isListening) continue;
      if (world.random.happens(deaf)) continue;
      world.after(world.random.between(0.2, 5), other.#program, () => other.#deliver(channel, payload));
    }
    await this.#event(() => undefined);
  }

  listen(channel: Channel, callbacks: { onPayload(payload: string): void; onGap(): void }): () => void {
    const known = this.#listeners.get(channel) ?? new Set();
    this.#listeners.set(channel, known.add(callbacks));
    return () => known.delete(callbacks);
  }

  isListening(): boolean {
    return this.#isListening;
  }

  /** The listening connection is made, or lost: either way notifications may have been missed. */
  setListening(isListening: boolean): void {
    this.#isListening = isListening;
    for (const set of this.#listeners.values()) for (const callbacks of set) callbacks.onGap();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #deliver(channel: Channel, payload: string): void {
    for (const callbacks of this.#listeners.get(channel) ?? []) callbacks.onPayload(payload);
  }

  async #statement<Row extends object>(statement: Statement, isInTransaction = false): Promise<pg.QueryResult<Row>> {
    const { world, real, losing } = this.#shared;
    this.#shared.statements += 1;
    if (this.#program.dies("statements")) {
      const hasEffect = !isInTransaction && world.random.happens(0.5);
      world.note(`${this.#program.name} dies ${hasEffect ? "after" : "before"} a statement`);
      if (hasEffect) this.#sent(() => real.run(statement).catch(() => undefined));
      this.#program.kill();
      return await new Promise<never>(() => undefined);
    }
    if (world.random.happens(losing)) {
      if (!isInTransaction && world.random.happens(0.5)) this.#sent(() => real.run(statement).catch(() => undefined));
      await this.#event(() => undefined, true);
      throw new DatabaseUnavailable(new Error("the connection was lost"));
    }
    return await this.#event(() => inOrder(statement, real.run<Row>(statement)), isInTransaction);
  }

  #acts<T>(work: () => T): T {
    this.#shared.acting = this.#program;
    return work();
  }

  /** The database does it, and the answer is lost. */
  #sent(work: () => Promise<unknown>): void {
    const { world, latencyMs } = this.#shared;
    const arrive = (): unknown =>
      this.#shared.admits(this, false) ? this.#acts(work) : this.#shared.await(() => world.after(0, null, arrive));
    world.after(world.random.between(0.05, latencyMs), null, arrive);
  }

  /**
   * Does the work at a separate event, as soon as no transaction of another keeps it; resolves at a later
   * event.
   */
  #event<T>(work: () => Promise<T> | T, isInTransaction = false): Promise<T> {
    const { world, latencyMs } = this.#shared;
    const owner = this.#program;
    const delay = (): number => world.random.between(0.05, latencyMs);
    return new Promise((resolve, reject) => {
      const answer = (how: () => void): void =>
        void world.after(delay(), owner, () => {
          world.activity += 1;
          how();
        });
      const arrive = async (): Promise<void> => {
        if (!this.#shared.admits(this, isInTransaction))
          return this.#shared.await(() => void world.after(delay(), owner, arrive));
        try {
          const result = await this.#acts(work);
          answer(() => resolve(result));
        } catch (error) {
          answer(() => reject(errorOf(error)));
        }
      };
      world.after(delay(), owner, arrive);
    });
  }
}

/** Whether the statement itself orders its rows. An order in parentheses is that of a part of it. */
function isOrdered(text: string): boolean {
  let outer = text;
  for (let before = ""; outer !== before; ) {
    before = outer;
    outer = outer.replaceAll(/\([^()]*\)/g, "");
  }
  return /ORDER BY/i.test(outer);
}

async function inOrder<Row extends object>(
  { text }: Statement,
  running: Promise<pg.QueryResult<Row>>,
): Promise<pg.QueryResult<Row>> {
  const result = await running;
  if (result.rows.length > 1 && !isOrdered(text)) {
    const keys = new Map(result.rows.map((row) => [row, JSON.stringify(row)]));
    result.rows.sort((one, other) => ((keys.get(one) ?? "") < (keys.get(other) ?? "") ? -1 : 1));
  }
  return result;
}
