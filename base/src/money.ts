/**
 * Amounts of money as text. Pure.
 */

const DECIMALS = 6;

/**
 * Integer micros as an exact decimal number of currency units, with at least two decimals: `1.50`,
 * `0.000012`.
 */
export function renderMicros(micros: number): string {
  const digits = String(Math.abs(micros)).padStart(DECIMALS + 1, "0");
  const [whole, fraction] = [digits.slice(0, -DECIMALS), digits.slice(-DECIMALS)];
  return `${micros < 0 ? "-" : ""}${whole}.${fraction.slice(0, 2)}${fraction.slice(2).replace(/0+$/, "")}`;
}

/** An amount, or another whole number, is beyond 2^53, so no JSON number holds it exactly. */
export class InexactAmount extends Error {
  constructor(amount: bigint | string) {
    super(`${amount} is beyond 2^53, and a JSON number does not hold it exactly`);
    this.name = "InexactAmount";
  }
}
