/**
 * The program that is installed on this host for VMMs, and whether this agent can start it.
 */
import type { Driver, VmRecord } from "../driver/driver.ts";

export class VmmProgram {
  readonly #driver: Pick<Driver, "program" | "installedProgram">;
  /** As last looked at. */
  #current: string;

  constructor(driver: Pick<Driver, "program" | "installedProgram">) {
    this.#driver = driver;
    this.#current = driver.program;
  }

  /** Looks again. While it is being replaced it is what it was. */
  async refresh(): Promise<void> {
    this.#current = await this.#driver.installedProgram().catch(() => this.#current);
  }

  /** Whether a VMM runs another one. */
  isOutdated({ program }: Pick<VmRecord, "program">): boolean {
    return program !== this.#current;
  }

  /** Templates and formats of this agent are those of the program with which it started. */
  get needsAgentRestart(): boolean {
    return this.#current !== this.#driver.program;
  }
}
