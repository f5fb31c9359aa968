/**
 * Joins a caller's connection and a guest's after an upgrade.
 *
 * Always:
 * - each side receives what the other sends, no faster than it reads;
 * - when one side is closed, the other is closed after it has received what was sent before;
 * - when the server stops, both are closed;
 * - a caller that has ended its direction receives from the guest for HALF_OPEN_MS more. Usually it has left,
 *   and a guest that ignores the end would hold the connection for ever.
 */
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";

const HALF_OPEN_MS = 30_000;

export function splice(
  caller: Duplex,
  guest: Duplex,
  { clock, closing }: { readonly clock: Clock; readonly closing: AbortSignal },
): void {
  const over = new AbortController();
  const closed = new AbortController();
  const end = (): void => {
    if (over.signal.aborted) return;
    over.abort();
    guest.destroy();
    caller.end(() => caller.destroy());
    // A caller that does not read the rest is not waited for.
    void clock.sleep(HALF_OPEN_MS, closed.signal).then(() => caller.destroy());
  };
  caller.on("error", () => caller.destroy());
  guest.on("error", () => undefined);
  guest.once("close", end);
  caller.once("close", () => {
    closed.abort();
    end();
  });
  caller.once("end", () => void clock.sleep(HALF_OPEN_MS, over.signal).then(end));
  closing.addEventListener("abort", end, { once: true });
  over.signal.addEventListener("abort", () => closing.removeEventListener("abort", end), { once: true });
  if (closing.aborted || caller.destroyed || guest.destroyed) return end();
  caller.pipe(guest);
  guest.pipe(caller);
  // After the guest's end nothing more is returned.
  guest.once("end", () => guest.destroy());
}
