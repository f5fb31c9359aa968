/**
 * One call of the command line: what every verb receives, and the shape that every verb has.
 *
 * Always:
 * - A verb gets the environment, clock and streams from here only, so that a test can replace them.
 * - The server is looked up when it is first used, not before.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Environment } from "@flotilla/contract/settings";
import type { Flotilla, FlotillaOptions } from "@flotilla/sdk";
import { type Connection, type ConnectionOptions, openFlotilla, resolveConnection } from "./connection.ts";
import { Output, type Streams } from "./output.ts";

/** What main.ts passes to all commands. */
export interface World {
  readonly environment: Environment;
  /** The base of relative paths. */
  readonly directory: string;
  readonly clock: Clock;
  readonly streams: Streams;
  /**
   * Calls back at each stop request (Ctrl-C, SIGTERM, closed terminal) until the returned function is called.
   */
  readonly onStopSignal: (stop: () => void) => () => void;
  /** Keeps the process alive from then on when output cannot be written. */
  readonly continueWithoutOutput: () => void;
  /**
   * From then on, the process ends with its command, also with a connection that is open and with output that
   * is not read.
   */
  readonly endWithCommand: () => void;
}

/** Options of every verb that talks to a server. */
export interface CommonOptions extends ConnectionOptions {
  readonly json?: boolean;
}

export class Call {
  readonly world: World;
  readonly output: Output;
  readonly options: CommonOptions;
  #connection: Connection | null = null;

  constructor(world: World, options: CommonOptions) {
    this.world = world;
    this.options = options;
    this.output = new Output(world.streams, world.clock, { isJson: options.json === true });
  }

  /** The server of this call. `transport` replaces the global fetch where its timeout is too short. */
  flotilla(transport?: FlotillaOptions["fetch"]): Flotilla {
    return openFlotilla(this.connect(), transport);
  }

  connect(): Connection {
    this.#connection ??= resolveConnection(this.world.environment, this.options);
    return this.#connection;
  }

  /** The connection; null before it was first used. */
  get connection(): Connection | null {
    return this.#connection;
  }
}

/** A verb's file exports its function under this name. It returns the exit code; undefined means 0. */
export interface VerbModule<Options> {
  run(call: Call, operands: readonly string[], options: Options): Promise<number | void>;
}
