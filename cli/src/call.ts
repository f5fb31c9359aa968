/**
 * One call of the command line: what every verb is handed, and the shape that every verb has.
 *
 * Always: a verb takes the world from here and nowhere else (environment, clock, streams), so that a test can hand it
 * another one; the server is looked up when it is first asked for, not before.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Environment } from "@flotilla/contract/settings";
import type { Flotilla, FlotillaOptions } from "@flotilla/sdk";
import { type Connection, type ConnectionOptions, openFlotilla, resolveConnection } from "./connection.ts";
import { Output, type Streams } from "./output.ts";

/** What main.ts gives to all commands. */
export interface World {
  readonly environment: Environment;
  /** Where relative paths start. */
  readonly directory: string;
  readonly clock: Clock;
  readonly streams: Streams;
  /** Calls back at each request to stop (Ctrl-C, SIGTERM, the terminal closing) until the answer is called. */
  readonly onStopSignal: (stop: () => void) => () => void;
}

/** Options that every verb which talks to a server understands. */
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

  /** The server of this call. `transport` replaces the global fetch where that would give up too early. */
  flotilla(transport?: FlotillaOptions["fetch"]): Flotilla {
    return openFlotilla(this.connect(), transport);
  }

  connect(): Connection {
    this.#connection ??= resolveConnection(this.world.environment, this.options);
    return this.#connection;
  }

  /** The connection, when the call has got that far. */
  get connection(): Connection | null {
    return this.#connection;
  }
}

/** A verb's file exports its work under this name; it answers the exit code, 0 when it answers nothing. */
export interface VerbModule<Options> {
  run(call: Call, operands: readonly string[], options: Options): Promise<number | void>;
}
