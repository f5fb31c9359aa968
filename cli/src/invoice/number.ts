/**
 * The number of an invoice as text. Pure.
 */
import type { InvoiceInfo } from "@flotilla/sdk";

/** Such as 17, and 20260723T120000Z-17 since a restore of the control plane. Empty: it has none. */
export const numberOf = ({ series, number }: Pick<InvoiceInfo, "series" | "number">): string =>
  number === null ? "" : `${series === null ? "" : `${series}-`}${number}`;
