/**
 * Which rows of a long list are in the page, and where.
 *
 * Always: rows of one height cost the same whatever the list's length; only wrapped ones are measured.
 */
import { useVirtualizer } from "@tanstack/react-virtual";
import { type RefObject, useLayoutEffect, useState } from "react";

const ROW_PIXELS = 20;
const OVERSCAN = 20;

export interface Row {
  readonly index: number;
  /** Pixels from the beginning of the list. */
  readonly start: number;
}

export interface Rows {
  readonly total: number;
  readonly rows: readonly Row[];
  /** Called with each row; null: all have the same height. */
  readonly measure: ((element: HTMLElement | null) => void) | null;
  startOf(index: number): number | undefined;
  at(offset: number): Row | undefined;
  /** The list was scrolled. */
  scrolled(): void;
}

interface RowsOptions {
  readonly scroller: RefObject<HTMLDivElement | null>;
  readonly count: number;
  /** Names a row, whatever its index is later. */
  readonly keyOf: (index: number) => number;
  readonly isWrapped: boolean;
  /** The last rows are seen. */
  readonly isAtEnd: boolean;
}

/** The first row is below one row of another kind. */
export function useRows(options: RowsOptions): Rows {
  const wrapped = useWrapped(options);
  const uniform = useUniform(options);
  return options.isWrapped ? wrapped : uniform;
}

function useUniform({ scroller, count, isAtEnd }: RowsOptions): Rows {
  const [seen, setSeen] = useState({ top: 0, height: 0 });
  const scrolled = (): void => {
    const element = scroller.current;
    if (element === null) return;
    const { scrollTop: top, clientHeight: height } = element;
    if (top !== seen.top || height !== seen.height) setSeen({ top, height });
  };
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => {
      setSeen({ top: element.scrollTop, height: element.clientHeight });
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [scroller]);
  const total = (count + 1) * ROW_PIXELS;
  const startOf = (index: number): number => (index + 1) * ROW_PIXELS;
  const at = (offset: number): Row => {
    const index = Math.min(Math.max(0, Math.floor(offset / ROW_PIXELS) - 1), Math.max(0, count - 1));
    return { index, start: startOf(index) };
  };
  const top = isAtEnd ? Math.max(0, total - seen.height) : seen.top;
  const first = Math.max(0, at(top).index - OVERSCAN);
  const last = Math.min(count - 1, at(top + seen.height).index + OVERSCAN);
  const rows = Array.from({ length: Math.max(0, last - first + 1) }, (_, each) => ({
    index: first + each,
    start: startOf(first + each),
  }));
  return { total, rows, measure: null, startOf, at, scrolled };
}

function useWrapped({ scroller, count, keyOf, isWrapped }: RowsOptions): Rows {
  const virtual = useVirtualizer({
    count: isWrapped ? count : 0,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PIXELS,
    getItemKey: keyOf,
    overscan: OVERSCAN,
    paddingStart: ROW_PIXELS,
  });
  return {
    total: virtual.getTotalSize(),
    rows: virtual.getVirtualItems(),
    measure: virtual.measureElement,
    startOf: (index) => virtual.measurementsCache[index]?.start,
    at: (offset) => virtual.getVirtualItemForOffset(offset),
    scrolled: () => undefined,
  };
}
