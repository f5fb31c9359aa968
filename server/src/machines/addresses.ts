/**
 * The public addresses of machines: a host name below the domain for machines, if one is configured, and
 * always a path of this server. Pure, except for the address of this server, which is known when it listens.
 */
import type { MachineRecord } from "./record.ts";

const HOST_NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const PROXY_PATH = /^\/proxy\/(mach-[0-9a-f]{32})(?=[/?]|$)/;

/** The machine that a request is for, and the address that its caller used. */
export interface Route {
  readonly by: "host" | "path";
  /** A host name, or an id. */
  readonly name: string;
  /** The path of the guest's root; empty for a host name. */
  readonly prefix: string;
  readonly isEncrypted: boolean;
}

export class MachineAddresses {
  readonly #machines: URL | null;
  #server: URL;

  /**
   * Both without a path: the domain for machines, such as `https://machines.example.com`, and the URL of this
   * server.
   */
  constructor({ machinesUrl, publicUrl }: { readonly machinesUrl: string | null; readonly publicUrl: string | null }) {
    this.#machines = machinesUrl === null ? null : new URL(machinesUrl);
    this.#server = new URL(publicUrl ?? "http://127.0.0.1");
    if (publicUrl !== null) this.listensAt = () => undefined;
  }

  /** Sets where the server listens, which is its address unless `publicUrl` is configured. */
  listensAt = (url: string): void => {
    const server = new URL(url);
    // A wildcard address is reachable on the same host by its loopback address.
    if (server.hostname === "0.0.0.0") server.hostname = "127.0.0.1";
    if (server.hostname === "[::]") server.hostname = "[::1]";
    this.#server = server;
  };

  /** The address of the first published port, with `/` at its end. */
  urlOf({ id, hostName }: Pick<MachineRecord, "id" | "hostName">): string {
    if (this.#machines === null) return `${this.#server.origin}/proxy/${id}/`;
    const { protocol, host } = this.#machines;
    return `${protocol}//${hostName}.${host}/`;
  }

  /**
   * Whether the host name is this server's, or below the domain for machines and apps: no app's domain may
   * be.
   */
  isOwnHost(host: string): boolean {
    const domain = this.#machines?.hostname ?? "localhost";
    return host === this.#server.hostname || host === domain || host.endsWith(`.${domain}`);
  }

  /** undefined: the request is not for a machine. */
  routeOf(host: string | undefined, url: string): Route | undefined {
    const name = this.#hostNameOf(host ?? "");
    if (name !== undefined) return { by: "host", name, prefix: "", isEncrypted: this.#machines?.protocol === "https:" };
    const id = PROXY_PATH.exec(url)?.[1];
    if (id === undefined) return undefined;
    return { by: "path", name: id, prefix: `/proxy/${id}`, isEncrypted: this.#server.protocol === "https:" };
  }

  #hostNameOf(host: string): string | undefined {
    if (this.#machines === null) return undefined;
    const full = host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
    const suffix = `.${this.#machines.hostname}`;
    if (!full.endsWith(suffix) || full === this.#server.hostname) return undefined;
    const name = full.slice(0, -suffix.length);
    return HOST_NAME.test(name) ? name : undefined;
  }
}
