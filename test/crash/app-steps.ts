/**
 * What happens to apps in the database, step by step: triggers, only in the database of a test, notify of
 * each change of a row when it is committed, so that a program can be killed at that moment.
 */
import pg from "pg";
import type { ConnectionOptions } from "../../server/src/db/hosts.ts";

/** A committed change. `machineId`: of the instance that it is about; null: of none. */
export interface Step {
  /** The name of the app. */
  readonly app: string;
  readonly step: string;
  readonly machineId: string | null;
}

const CHANNEL = "crash_steps";

const step = (app: string, name: string, machineId = "NULL"): string =>
  `PERFORM pg_notify('${CHANNEL}', json_build_object('app', (SELECT name FROM apps WHERE id = ${app}),
    'step', ${name}, 'machineId', ${machineId})::text);`;

const trigger = (table: string, body: string): string => `
  CREATE FUNCTION crash_${table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${body} RETURN NULL; END $$;
  CREATE TRIGGER crash_${table} AFTER INSERT OR UPDATE OR DELETE ON ${table} FOR EACH ROW EXECUTE FUNCTION crash_${table}();`;

const OF_MACHINE = "(SELECT app_id FROM app_instances WHERE machine_id = NEW.id)";
const IS_INSTANCE = "EXISTS (SELECT FROM app_instances WHERE machine_id = NEW.id)";

const TRIGGERS = [
  trigger(
    "apps",
    `IF TG_OP = 'UPDATE' AND OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL THEN ${step("NEW.id", "'destroyed'")} END IF;`,
  ),
  trigger(
    "app_rollouts",
    `IF TG_OP = 'INSERT' THEN ${step("NEW.app_id", "'begun'")} END IF;
     IF TG_OP = 'UPDATE' THEN
       IF NEW.progress->>'phase' IS DISTINCT FROM OLD.progress->>'phase' THEN ${step("NEW.app_id", "NEW.progress->>'phase'")} END IF;
       IF NEW.is_promoted AND NOT OLD.is_promoted THEN ${step("NEW.app_id", "'promoted'")} END IF;
       IF NEW.ended_at IS NOT NULL AND OLD.ended_at IS NULL THEN ${step("NEW.app_id", "'ended'")} END IF;
     END IF;`,
  ),
  trigger(
    "app_instances",
    `IF TG_OP = 'INSERT' THEN ${step("NEW.app_id", "'made'", "NEW.machine_id")} END IF;
     IF TG_OP = 'DELETE' THEN ${step("OLD.app_id", "'forgotten'")} END IF;
     IF TG_OP = 'UPDATE' THEN
       IF NEW.is_routed AND NOT OLD.is_routed THEN ${step("NEW.app_id", "'routed'", "NEW.machine_id")} END IF;
       IF OLD.retired_at IS NULL AND NEW.retired_at IS NOT NULL THEN ${step("NEW.app_id", "'retired'", "NEW.machine_id")} END IF;
       IF OLD.removed_at IS NULL AND NEW.removed_at IS NOT NULL THEN ${step("NEW.app_id", "'removed'", "NEW.machine_id")} END IF;
     END IF;`,
  ),
  trigger(
    "machines",
    `IF TG_OP = 'UPDATE' AND ${IS_INSTANCE} THEN
       IF OLD.desired_state <> NEW.desired_state THEN ${step(OF_MACHINE, "'asked to be ' || NEW.desired_state", "NEW.id")} END IF;
       IF OLD.observed_state <> NEW.observed_state THEN ${step(OF_MACHINE, "'observed ' || NEW.observed_state", "NEW.id")} END IF;
     END IF;
     IF TG_OP = 'INSERT' AND ${IS_INSTANCE} THEN ${step(OF_MACHINE, "'created'", "NEW.id")} END IF;`,
  ),
];

/** The steps of apps as they are committed, also after PostgreSQL was killed. */
export class AppSteps {
  readonly #connection: ConnectionOptions;
  #client: pg.Client | null = null;
  onStep: (step: Step) => void = () => undefined;

  private constructor(connection: ConnectionOptions) {
    this.#connection = connection;
  }

  static async watch(connection: ConnectionOptions): Promise<AppSteps> {
    const steps = new AppSteps(connection);
    await steps.listen();
    for (const each of TRIGGERS) await steps.query(each);
    return steps;
  }

  /** Connects again. */
  async listen(): Promise<void> {
    await this.close();
    const client = new pg.Client(this.#connection);
    client.on("error", () => undefined);
    client.on("notification", ({ payload = "" }) => this.onStep(JSON.parse(payload) as Step));
    await client.connect();
    await client.query(`LISTEN ${CHANNEL}`);
    this.#client = client;
  }

  async query<Row extends pg.QueryResultRow>(text: string): Promise<readonly Row[]> {
    if (this.#client === null) throw new Error("the database is not connected");
    return (await this.#client.query<Row>(text)).rows;
  }

  async close(): Promise<void> {
    const client = this.#client;
    this.#client = null;
    await client?.end().catch(() => undefined);
  }
}
