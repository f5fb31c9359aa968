/**
 * Joins a caller's connection and a guest's, once both speak something of their own.
 *
 * Always: what one sends the other gets, no faster than it reads; when one is gone the other goes, after what it was still
 * to get; when the server stops both end. A caller that has ended its own direction hears the guest for HALF_OPEN_MS
 * more: mostly it is gone, and a guest that does not care would hold the connection for ever.
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
    // One that does not read what is left for it is not waited for.
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
  // The guest's end is the end: nothing more comes back.
  guest.once("end", () => guest.destroy());
}
