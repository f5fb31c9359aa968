/**
 * What a node on another host needs to know of its fleet, and the restart of its agent.
 */
import { clipped, clippedList, list, type Message, nullable, text, Type } from "./vocabulary.ts";

/** A server's node listener, and its addresses: `host:port`. */
export const FleetListener = Type.Object({ id: text(64), addresses: list(text(300), 16) });
export type FleetListener = Message<typeof FleetListener>;

/** What a node on another host needs to know of its fleet. */
export const FleetFacts = Type.Object({
  /** The certificates of the fleet authorities, as PEM. */
  authorities: list(text(8_000), 16),
  /** A new certificate of the node, as PEM; null: it keeps the one that it has. */
  certificate: nullable(text(8_000)),
  /** Listeners of every running server. */
  listeners: list(FleetListener, 256),
  /**
   * Listeners of every running ingress: where a node that dials out parks connections that open ports of
   * machines, and nothing else.
   */
  ingresses: clippedList(FleetListener, 16),
});
export type FleetFacts = Message<typeof FleetFacts>;

/** Restarts the agent as the program that is installed on its host. */
export const RestartRequest = Type.Object({
  /** The incarnation that is to end: a repeated request restarts no other. */
  agentBootId: clipped(),
});
export type RestartRequest = Message<typeof RestartRequest>;

export const RestartAnswer = Type.Object({
  /**
   * The incarnation that answers. Another one than in the request: it has been restarted already, and
   * continues.
   */
  agentBootId: clipped(),
  /** Release of the installed program, which has been run once to say it. */
  release: clipped(64),
});
export type RestartAnswer = Message<typeof RestartAnswer>;
