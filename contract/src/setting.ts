/**
 * The form of a setting. The settings themselves are in settings.ts.
 */
export type Program = "up" | "server" | "ingress" | "node" | "e2b" | "cli";

export interface Setting<T> {
  /** The environment variable. */
  readonly env: string;
  /** Without the leading dashes; absent for settings that must not appear in a process list. */
  readonly flag?: string;
  readonly programs: readonly Program[];
  readonly meaning: string;
  /** The default as text, for the documentation. */
  readonly defaultText: string;
  readonly isSecret?: true;
  /** `undefined`: not given. Throws an Error that says what was expected. */
  parse(value: string | undefined, environment: Environment): T;
}

export type Environment = Readonly<Record<string, string | undefined>>;
