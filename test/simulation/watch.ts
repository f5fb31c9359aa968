/**
 * What databases of simulations have besides: triggers that say of decisions that a step is too long to see,
 * with a notice at the moment of a statement, and the virtual time.
 */
import type { NodeStatus } from "@flotilla/contract/nodes";

/** Times are those of the server that wrote. */
export type Notice =
  /** It was decided that what may be replaced of a node is. */
  | { readonly kind: "lost"; readonly nodeId: string; readonly nodes: readonly SeenNode[] }
  /** A machine of a pool is to be deleted. */
  | {
      readonly kind: "discarded";
      readonly machineId: string;
      readonly isClaimed: boolean;
      readonly isPoolDeleted: boolean;
      readonly fence: string | null;
      /** What is seen of its node; null: it has none. */
      readonly node: SeenNode | null;
    }
  /** A machine left its pool, by a claim or a use. */
  | { readonly kind: "claimed"; readonly machineId: string; readonly isDiscarded: boolean };

export interface SeenNode {
  readonly id: string;
  readonly status: NodeStatus;
  readonly isInMaintenance: boolean;
  /** Since its last heartbeat. */
  readonly silentMs: number;
  /** Since it was decided that its machines are replaced; null: it was not. */
  readonly lostMs: number | null;
}

const NODE = (at: string): string => `json_build_object(
  'id', n.id, 'status', n.status, 'isInMaintenance', n.maintenance_at IS NOT NULL,
  'silentMs', round(extract(epoch FROM ${at} - greatest(n.last_heartbeat_at, n.registered_at)) * 1000),
  'lostMs', round(extract(epoch FROM ${at} - n.lost_at) * 1000))`;

/** The setting of a session that is the present, in epoch seconds. */
export const DATABASE_NOW = "simulated.now";

export const WATCH = `
  CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE AS
    $$ SELECT to_timestamp(current_setting('${DATABASE_NOW}')::float8) $$;
  CREATE FUNCTION simulated_lost() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE NOTICE '%', (SELECT json_build_object('kind', 'lost', 'nodeId', NEW.id, 'nodes', json_agg(${NODE("NEW.lost_at")} ORDER BY n.id)) FROM nodes n);
    RETURN NULL;
  END $$;
  CREATE TRIGGER simulated_lost AFTER UPDATE OF lost_at ON nodes FOR EACH ROW
    WHEN (OLD.lost_at IS NULL AND NEW.lost_at IS NOT NULL) EXECUTE FUNCTION simulated_lost();
  CREATE FUNCTION simulated_discarded() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE NOTICE '%', json_build_object('kind', 'discarded', 'machineId', NEW.machine_id, 
      'isClaimed', EXISTS (SELECT FROM pool_claims c WHERE c.machine_id = NEW.machine_id),
      'isPoolDeleted', (SELECT p.deleted_at IS NOT NULL FROM pools p WHERE p.id = NEW.id),
      'fence', (SELECT m.fence FROM machines m WHERE m.id = NEW.machine_id),
      'node', (SELECT ${NODE("NEW.discarded_at")} FROM machines m JOIN nodes n ON n.id = m.node_id WHERE m.id = NEW.machine_id));
    RETURN NULL;
  END $$;
  CREATE TRIGGER simulated_discarded AFTER UPDATE OF discarded_at ON machine_owners FOR EACH ROW
    WHEN (OLD.discarded_at IS NULL AND NEW.discarded_at IS NOT NULL) EXECUTE FUNCTION simulated_discarded();
  CREATE FUNCTION simulated_claimed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF EXISTS (SELECT FROM pool_claims c WHERE c.machine_id = OLD.machine_id) THEN
      RAISE NOTICE '%', json_build_object('kind', 'claimed', 'machineId', OLD.machine_id, 'isDiscarded', OLD.discarded_at IS NOT NULL);
    END IF;
    RETURN NULL;
  END $$;
  CREATE TRIGGER simulated_claimed AFTER DELETE ON machine_owners FOR EACH ROW EXECUTE FUNCTION simulated_claimed()`;
