/**
 * How many requests of apps are open through this ingress, by instance.
 *
 * Always: a request counts from the choice of its instance, before anything is connected, until the last of
 * what holds it is over: so what the ingress confirms as ended sends nothing any more.
 */

/** One request at one instance. */
export interface CountedRequest {
  /** Holds it until the function that is returned is called; calling that again changes nothing. */
  readonly hold: () => () => void;
}

interface Tally {
  readonly appId: string;
  open: number;
}

export class OpenRequests {
  readonly #byMachine = new Map<string, Tally>();
  readonly #onNone: (appId: string, machineId: string) => void;

  /** `onNone` is called when the last open request of an instance has ended. */
  constructor(onNone: (appId: string, machineId: string) => void) {
    this.#onNone = onNone;
  }

  in(machineId: string): number {
    return this.#byMachine.get(machineId)?.open ?? 0;
  }

  /** How many instances have some. */
  get size(): number {
    return this.#byMachine.size;
  }

  /** Counts a request as soon as something holds it. */
  request(appId: string, machineId: string): CountedRequest {
    let holds = 0;
    return {
      hold: () => {
        if (holds === 0) this.#begin(appId, machineId);
        holds += 1;
        let isHeld = true;
        return () => {
          if (!isHeld) return;
          isHeld = false;
          holds -= 1;
          if (holds === 0) this.#end(machineId);
        };
      },
    };
  }

  /** By instance, those that are selected. */
  list(isSelected: (appId: string, machineId: string) => boolean): Readonly<Record<string, number>> {
    const selected = [...this.#byMachine].filter(([machineId, { appId }]) => isSelected(appId, machineId));
    return Object.fromEntries(selected.map(([machineId, { open }]) => [machineId, open]));
  }

  /** By app. */
  byApp(): ReadonlyMap<string, number> {
    const sums = new Map<string, number>();
    for (const { appId, open } of this.#byMachine.values()) sums.set(appId, (sums.get(appId) ?? 0) + open);
    return sums;
  }

  #begin(appId: string, machineId: string): void {
    const tally = this.#byMachine.get(machineId);
    if (tally === undefined) this.#byMachine.set(machineId, { appId, open: 1 });
    else tally.open += 1;
  }

  #end(machineId: string): void {
    const tally = this.#byMachine.get(machineId);
    if (tally === undefined) return;
    tally.open -= 1;
    if (tally.open > 0) return;
    this.#byMachine.delete(machineId);
    this.#onNone(tally.appId, machineId);
  }
}
