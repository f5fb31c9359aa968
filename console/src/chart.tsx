/**
 * A chart of bars over days in UTC, with the same figures as a table for who does not see it.
 */
import { useEffect, useRef } from "react";
import UPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "./theme.ts";

const HEIGHT = 180;
const DAY_SECONDS = 86_400;
/** Fewer days are drawn at the left of as many, because one bar alone says nothing. */
const DAYS_MIN = 7;

export interface Point {
  /** The start of the day. */
  readonly at: Date;
  readonly value: number;
}

interface ChartProps {
  readonly label: string;
  readonly points: readonly Point[];
  readonly render: (value: number) => string;
}

export function Chart({ label, points, render }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  useEffect(() => {
    const [element, first, last] = [place.current, points[0], points.at(-1)];
    if (element === null || first === undefined || last === undefined) return undefined;
    const style = getComputedStyle(document.documentElement);
    const [text, line, fill] = ["--dim", "--line", "--accent"].map((name) => style.getPropertyValue(name).trim());
    const axis = { stroke: text ?? "", grid: { stroke: line ?? "", width: 1 }, ticks: { show: false } };
    const from = first.at.getTime() / 1000 - DAY_SECONDS / 2;
    const to = Math.max(last.at.getTime() / 1000 + DAY_SECONDS / 2, from + DAYS_MIN * DAY_SECONDS);
    const data: UPlot.AlignedData = [points.map(({ at }) => at.getTime() / 1000), points.map(({ value }) => value)];
    const bars = UPlot.paths.bars?.({ size: [0.7, 48] });
    const plot = new UPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1000), "UTC"),
        scales: {
          x: { range: () => [from, to] },
          y: { range: (_, __, max) => [0, max] },
        },
        axes: [axis, { ...axis, size: 70, values: (_, values) => values.map((value) => render(value)) }],
        series: [
          {},
          { fill: fill ?? "", width: 0, ...(bars === undefined ? {} : { paths: bars }), points: { show: false } },
        ],
      },
      data,
      element,
    );
    const sizes = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      plot.destroy();
    };
  }, [points, render, theme]);
  if (points.every(({ value }) => value === 0)) return <p className="dim fine">{label}: nothing yet</p>;
  return (
    <figure className="chart">
      <figcaption>{label}</figcaption>
      <div ref={place} aria-hidden="true" />
      <details>
        <summary>As a table</summary>
        <table>
          <tbody>
            {points.map(({ at, value }) => (
              <tr key={at.getTime()}>
                <th scope="row">{at.toLocaleDateString(undefined, { timeZone: "UTC" })}</th>
                <td className="number">{render(value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </figure>
  );
}
