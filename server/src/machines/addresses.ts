/**
 * Under which addresses the world reaches machines: a host of their own below the domain for machines, where there is
 * one, and a path of this server, always. Pure, but for the address of this server, which is known once it listens.
 */
import type { MachineRecord } from "./record.ts";

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const PROXY_PATH = /^\/proxy\/(mach-[0-9a-f]{32})(?=[/?]|$)/;

/** Which machine a request is for, and how its caller sees it. */
export interface Route {
  readonly by: "host" | "path";
  /** The label of a host, or an id. */
  readonly name: string;
  /** The path under which the guest's root is; empty for a host of its own. */
  readonly prefix: string;
  readonly isEncrypted: boolean;
}

export class MachineAddresses {
  readonly #apps: URL | null;
  #server: URL;

  /** Both without a path: where hosts of machines are, such as `https://apps.example.com`, and where this server is. */
  constructor({ appsUrl, publicUrl }: { readonly appsUrl: string | null; readonly publicUrl: string | null }) {
    this.#apps = appsUrl === null ? null : new URL(appsUrl);
    this.#server = new URL(publicUrl ?? "http://127.0.0.1");
    if (publicUrl !== null) this.listensAt = () => undefined;
  }

  /** Says where the server listens, which is its address unless it was told another. */
  listensAt = (url: string): void => {
    const own = new URL(url);
    // Who listens everywhere is nowhere; on its own host it is found here.
    if (own.hostname === "0.0.0.0") own.hostname = "127.0.0.1";
    if (own.hostname === "[::]") own.hostname = "[::1]";
    this.#server = own;
  };

  /** The address of the first published port, with `/` at its end. */
  urlOf({ id, hostLabel }: Pick<MachineRecord, "id" | "hostLabel">): string {
    if (this.#apps === null) return `${this.#server.origin}/proxy/${id}/`;
    const { protocol, host } = this.#apps;
    return `${protocol}//${hostLabel}.${host}/`;
  }

  /** undefined: the request is none to a machine. */
  routeOf(host: string | undefined, url: string): Route | undefined {
    const label = this.#labelOf(host ?? "");
    if (label !== undefined)
      return { by: "host", name: label, prefix: "", isEncrypted: this.#apps?.protocol === "https:" };
    const id = PROXY_PATH.exec(url)?.[1];
    if (id === undefined) return undefined;
    return { by: "path", name: id, prefix: `/proxy/${id}`, isEncrypted: this.#server.protocol === "https:" };
  }

  #labelOf(host: string): string | undefined {
    if (this.#apps === null) return undefined;
    const name = host.toLowerCase().replace(/:\d*$/, "").replace(/\.$/, "");
    const suffix = `.${this.#apps.hostname}`;
    if (!name.endsWith(suffix) || name === this.#server.hostname) return undefined;
    const label = name.slice(0, -suffix.length);
    return LABEL.test(label) ? label : undefined;
  }
}
