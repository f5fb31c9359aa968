/**
 * The list of a directory while it is read: the JSON of its entries, bounded. Pure.
 *
 * A guest chooses how many entries there are and how long their names are: 100,000 names of 250 control
 * characters are 156 MB of JSON, and several times that as objects.
 *
 * Always:
 * - A list has at most LIST_BYTES_MAX.
 * - What the lists hold that are read for a tenant, and for all, is bounded. It counts twice, because the
 *   answer is made of it.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { FileEntry } from "@flotilla/contract/files";
import type { ListedFile } from "@flotilla/contract/link/files";
import { Budget, refusalOf, type Shortage } from "../../fairness/budget.ts";

const MIB = 1024 * 1024;
/** 100,000 entries with names of 200 characters. */
export const LIST_BYTES_MAX = 32 * MIB;
/** A tenant may have two of the largest at once. */
const TENANT_BYTES_MAX = 4 * LIST_BYTES_MAX;
const ALL_BYTES_MAX = 4 * TENANT_BYTES_MAX;

export const listingBudget = (): Budget => new Budget({ perHolder: TENANT_BYTES_MAX, all: ALL_BYTES_MAX });

export interface ListingOptions {
  readonly budget: Budget;
  readonly tenantId: string;
  /** As the caller wrote it. */
  readonly path: string;
}

/** `[Symbol.dispose]` releases its part of the budget. */
export class Listing implements Disposable {
  readonly #options: ListingOptions;
  readonly #entries: { readonly name: string; readonly json: string }[] = [];
  #bytes = 0;

  constructor(options: ListingOptions) {
    this.#options = options;
  }

  /** Throws a Refusal when there is no room for it. */
  add({ modifiedAt, ...entry }: ListedFile): void {
    const listed: FileEntry = { ...entry, modifiedAt: new Date(modifiedAt).toISOString() };
    const json = JSON.stringify(listed);
    const bytes = Buffer.byteLength(json) + 1;
    const { budget, tenantId, path } = this.#options;
    if (this.#bytes + bytes > LIST_BYTES_MAX) {
      const text = `the list of ${path} is larger than ${LIST_BYTES_MAX} bytes; list it with a command, such as ls -f`;
      throw new Refusal("conflict", text);
    }
    const shortage = budget.take(tenantId, 2 * bytes);
    if (shortage !== null) throw noRoom(shortage, budget);
    this.#bytes += bytes;
    this.#entries.push({ name: entry.name, json });
  }

  /** All entries by name, as a JSON array. */
  toJson(): string {
    this.#entries.sort((one, other) => (one.name < other.name ? -1 : 1));
    return `[${this.#entries.map(({ json }) => json).join(",")}]`;
  }

  [Symbol.dispose](): void {
    this.#options.budget.release(this.#options.tenantId, 2 * this.#bytes);
    this.#bytes = 0;
  }
}

const noRoom = (shortage: Shortage, { perHolder }: Budget): Refusal =>
  refusalOf(shortage, {
    all: "the server reads as many lists of directories as it has room for; send the request again in a moment",
    holder: `the lists of directories that are read for this tenant now hold ${perHolder} bytes, which is all they may; read fewer at once`,
  });
