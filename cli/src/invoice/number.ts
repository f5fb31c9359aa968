/**
 * The number of an invoice as text. Pure.
 */
import type { InvoiceInfo } from "@flotilla/sdk";

/** The printed number: 17, or 20260723T120000Z-17 after a restore of the control plane. Empty: none. */
export const numberOf = ({ series, number }: Pick<InvoiceInfo, "series" | "number">): string =>
  number === null ? "" : `${series === null ? "" : `${series}-`}${number}`;
