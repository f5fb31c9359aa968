/**
 * The public addresses of machines and apps: a host name below the domain for them, a domain of an app, and
 * always a path of this server for a machine. Pure, except for the address of this server, which is known
 * when it listens.
 *
 * Always: without a configured domain, names below `localhost` are served, which browsers resolve to their
 * own host; machines show their path then.
 */
import type { MachineRecord } from "./record.ts";

const HOST_NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const LOCAL_DOMAIN = "localhost";
const PROXY_PATH = /^\/proxy\/(mach-[0-9a-f]{32})(?=[/?]|$)/;

/** What a request is for, and the address that its caller used. */
export interface Route {
  readonly by: "host" | "path";
  /** The first label of a host name, a domain of an app, or an id. */
  readonly name: string;
  /** The path of the guest's root; empty for a host name. */
  readonly prefix: string;
  readonly isEncrypted: boolean;
}

export class MachineAddresses {
  /** Whether the names of this server are known: an app may not have one of them as its domain. */
  readonly isNamed: boolean;
  readonly #machines: URL | null;
  #server: URL;

  /**
   * Both without a path: the domain for machines, such as `https://machines.example.com`, and the URL of this
   * server.
   */
  constructor({ machinesUrl, publicUrl }: { readonly machinesUrl: string | null; readonly publicUrl: string | null }) {
    this.#machines = machinesUrl === null ? null : new URL(machinesUrl);
    this.#server = new URL(publicUrl ?? "http://127.0.0.1");
    this.isNamed = publicUrl !== null;
    if (this.isNamed) this.listensAt = () => undefined;
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
    const name = nameOf(host);
    const domain = this.#domain();
    return name === this.#server.hostname || name === domain || name.endsWith(`.${domain}`);
  }

  /** undefined: no app has the host as its domain. */
  routeOfDomain(host: string | undefined, isDomain: (name: string) => boolean): Route | undefined {
    const name = nameOf(host ?? "");
    if (!isDomain(name) || this.isOwnHost(name)) return undefined;
    return { by: "host", name, prefix: "", isEncrypted: this.#machines?.protocol === "https:" };
  }

  /** undefined: the request is neither for a machine nor for an app. */
  routeOf(host: string | undefined, url: string): Route | undefined {
    const name = this.#hostNameOf(host ?? "");
    if (name !== undefined) return { by: "host", name, prefix: "", isEncrypted: this.#machines?.protocol === "https:" };
    const id = PROXY_PATH.exec(url)?.[1];
    if (id === undefined) return undefined;
    return { by: "path", name: id, prefix: `/proxy/${id}`, isEncrypted: this.#server.protocol === "https:" };
  }

  #hostNameOf(host: string): string | undefined {
    const full = nameOf(host);
    const suffix = `.${this.#domain()}`;
    if (!full.endsWith(suffix) || full === this.#server.hostname) return undefined;
    const name = full.slice(0, -suffix.length);
    return HOST_NAME.test(name) ? name : undefined;
  }

  #domain(): string {
    return this.#machines?.hostname ?? LOCAL_DOMAIN;
  }
}

/** A host's name without its port, in lower case. */
const nameOf = (host: string): string => host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
