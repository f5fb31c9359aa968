/**
 * The options of `flotilla bench`, as the command line parses them and the measurements read them.
 */
export const CREATE_MODES = ["sequential", "staggered", "burst"] as const;
export type CreateMode = (typeof CREATE_MODES)[number];

export interface BenchOptions {
  /** The folder that results of ComputeSDK's benchmark are written into. */
  readonly computesdk?: string;
  /** The first command of its sandboxes. */
  readonly command?: string;
  readonly create?: CreateMode;
  readonly count: number;
  readonly image: string;
  /** Milliseconds between launches. */
  readonly stagger: number;
  /** Seconds to wait after a warm-up. */
  readonly warmUp?: number;
}
