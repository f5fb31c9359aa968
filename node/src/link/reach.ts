/**
 * A node on another host than its servers: how it calls them, and how they reach it.
 */
import type { Socket } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { parkedAddress } from "@flotilla/contract/link/fleet";
import type { ListenAddress } from "@flotilla/contract/setting-values";
import { listenForServers } from "./link-listener.ts";
import { Membership } from "./membership.ts";
import { Parking, type Peer } from "./parking.ts";
import { RemoteServer } from "./remote-server.ts";

export interface ReachOptions {
  readonly nodeDirectory: string;
  readonly nodeId: string;
  readonly serverUrl: string;
  /** Set by `flotilla up` for the node of its host; null: the server is called over the network. */
  readonly nodeSocket: string | null;
  readonly joinToken: string | null;
  /** Where servers connect to it; null: it dials out. */
  readonly linkListen: ListenAddress | null;
  readonly clock: Clock;
  readonly log: Log;
}

export interface Reach {
  readonly server: RemoteServer;
  /** What the node registers as its address. */
  readonly address: string;
  /**
   * Lets servers and ingresses reach it. `serve` serves HTTP on a connection. Ends with the returned object.
   */
  open(serve: (socket: Socket, peer: Peer) => void): Promise<AsyncDisposable>;
}

/** null: the server is on this host. Throws an Error with what to do. */
export async function openReach(options: ReachOptions): Promise<Reach | null> {
  const { nodeDirectory, nodeId, joinToken, nodeSocket, linkListen, clock, log } = options;
  const membership = nodeSocket === null ? await Membership.open(nodeDirectory, nodeId, joinToken) : null;
  if (membership === null) return null;
  const server = new RemoteServer({ ...options, membership });
  return {
    server,
    address: linkListen === null ? parkedAddress(nodeId) : `https://${textOf(linkListen)}`,
    open: async (serve) => {
      const reached =
        linkListen === null
          ? new Parking({ membership, serve, clock, log })
          : await listenForServers({ listen: linkListen, membership, serve, log });
      return {
        [Symbol.asyncDispose]: async () => {
          reached.close();
          server.close();
        },
      };
    },
  };
}

const textOf = ({ host, port }: ListenAddress): string => `${host.includes(":") ? `[${host}]` : host}:${port}`;
