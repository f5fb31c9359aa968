/**
 * The small parts that every page is made of.
 */
import { Link } from "@tanstack/react-router";
import { type ButtonHTMLAttributes, type InputHTMLAttributes, type ReactNode, useId, useState } from "react";
import { reasonOf, requestIdOf } from "../api.ts";
import { plain, renderAge, renderDate } from "../format.ts";

/** Paths of 24 by 24 icons, drawn with lines. */
const ICONS = {
  overview: "M4 13h7V4H4zM13 20h7v-9h-7zM4 20h7v-5H4zM13 9h7V4h-7z",
  machines: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  apps: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM12 12l8-4.5M12 12v9M12 12L4 7.5",
  images: "M4 7l8-4 8 4-8 4zM4 12l8 4 8-4M4 17l8 4 8-4",
  packages: "M4 8l8-4 8 4v8l-8 4-8-4zM4 8l8 4 8-4M12 12v8M8 6l8 4",
  pools: "M12 3c4 5 6 7 6 11a6 6 0 0 1-12 0c0-4 2-6 6-11z",
  nodes: "M5 4h14v4H5zM5 10h14v4H5zM5 16h14v4H5zM9 6h6M9 12h6M9 18h6",
  operations: "M4 12a8 8 0 1 1 2.3 5.7M4 18v-6h6",
  events: "M13 2L4 14h7l-1 8 9-12h-7z",
  webhooks: "M9 12a4 4 0 1 1 4-4l4 7M7 13l-3 5h10M17 15a3 3 0 1 1-2 5",
  keys: "M8 20a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM11 13l9-9M16 8l3 3",
  audit: "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3",
  tenants: "M8 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21a6 6 0 0 1 12 0M16 3a4 4 0 0 1 0 8M17 15a6 6 0 0 1 5 6",
  usage: "M4 20V10M10 20V4M16 20v-8M21 20H3",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M14 4v6M6 14v6",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 6h16M4 12h16M4 18h16",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 13l4 4L19 7",
  moon: "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1 1M18 18l1 1M19 5l-1 1M6 18l-1 1",
  out: "M14 4h5v16h-5M10 8l-4 4 4 4M6 12h9",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  folder: "M3 6h6l2 2h10v11H3z",
  upload: "M12 16V4M7 9l5-5 5 5M4 20h16",
  download: "M12 4v12M7 11l5 5 5-5M4 20h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  warn: "M12 4l9 16H3zM12 10v4M12 17h.01",
} as const;
export type IconName = keyof typeof ICONS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  readonly look?: "plain" | "main" | "danger" | "quiet";
  readonly icon?: IconName;
  /** It waits for the server, and cannot be pressed again. */
  readonly isBusy?: boolean;
}

export function Button({ look = "plain", icon, isBusy = false, children, disabled, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      className={`button ${look}`}
      disabled={disabled === true || isBusy}
      aria-busy={isBusy || undefined}
      {...rest}
    >
      {isBusy ? <span className="spinner" /> : icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export type Tone = "good" | "busy" | "warn" | "bad" | "off";

export function Badge({ tone, children }: { readonly tone: Tone; readonly children: ReactNode }) {
  return <span className={`badge ${tone}`}>{children}</span>;
}

/** A line of the command line that does the same, to be copied. */
export function Cli({ line }: { readonly line: string }) {
  return (
    <div className="cli">
      <code>{line}</code>
      <CopyButton text={line} what="the command" />
    </div>
  );
}

export function CopyButton({ text, what }: { readonly text: string; readonly what: string }) {
  const [isCopied, setIsCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text);
    setIsCopied(true);
  };
  return (
    <button
      type="button"
      className="button quiet small"
      aria-label={isCopied ? "Copied" : `Copy ${what}`}
      onClick={() => void copy()}
      onBlur={() => setIsCopied(false)}
    >
      <Icon name={isCopied ? "check" : "copy"} />
    </button>
  );
}

/** What the server refused, where it was asked. */
export function ErrorNote({ error, retry }: { readonly error: unknown; readonly retry?: (() => void) | undefined }) {
  if (error === null || error === undefined) return null;
  const requestId = requestIdOf(error);
  return (
    <div className="note bad" role="alert">
      <Icon name="warn" />
      <div>
        <p>{reasonOf(error)}</p>
        {requestId !== null && <p className="dim small">request {requestId}</p>}
      </div>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

interface EmptyProps {
  readonly title: string;
  readonly children?: ReactNode;
  /** The line of the command line that makes the first one. */
  readonly cli?: string;
  readonly action?: ReactNode;
}

export function Empty({ title, children, cli, action }: EmptyProps) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children && <p className="dim">{children}</p>}
      {action}
      {cli !== undefined && (
        <>
          <p className="dim small">or in a terminal</p>
          <Cli line={cli} />
        </>
      )}
    </div>
  );
}

export function Loading({ what }: { readonly what: string }) {
  return (
    <p className="loading" role="status">
      <span className="spinner" /> Loading {what}
    </p>
  );
}

export function Time({ at, isWhole = false }: { readonly at: string | null; readonly isWhole?: boolean }) {
  if (at === null) return <span className="dim">never</span>;
  return (
    <time dateTime={at} title={renderDate(at)}>
      {isWhole ? renderDate(at) : renderAge(at)}
    </time>
  );
}

interface FieldProps extends Omit<InputHTMLAttributes<HTMLInputElement>, "id"> {
  readonly label: string;
  readonly hint?: ReactNode;
  /** Why the value is refused; null: it is not. */
  readonly fault?: string | null;
}

export function Field({ label, hint, fault = null, ...rest }: FieldProps) {
  const id = useId();
  const hasText = hint !== undefined || fault !== null;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input id={id} aria-invalid={fault !== null} aria-describedby={hasText ? `${id}-text` : undefined} {...rest} />
      {hasText && (
        <p id={`${id}-text`} className={fault === null ? "dim small" : "fault small"}>
          {fault ?? hint}
        </p>
      )}
    </div>
  );
}

interface SelectProps {
  readonly label: string;
  readonly value: string;
  readonly options: readonly (readonly [value: string, text: string])[];
  readonly onChange: (value: string) => void;
  readonly isInline?: boolean;
}

export function Select({ label, value, options, onChange, isInline = false }: SelectProps) {
  const id = useId();
  return (
    <div className={isInline ? "field inline" : "field"}>
      <label htmlFor={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChange(event.target.value)}>
        {options.map(([each, text]) => (
          <option key={each} value={each}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

/** A name and its value in each row; rows without a value are left out. */
export function Facts({ rows }: { readonly rows: readonly (readonly [name: string, value: ReactNode])[] }) {
  return (
    <dl className="facts">
      {rows
        .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{plain(name)}</dt>
            <dd>{typeof value === "string" ? plain(value) : value}</dd>
          </div>
        ))}
    </dl>
  );
}

interface PageHeadProps {
  readonly title: string;
  readonly badge?: ReactNode;
  readonly children?: ReactNode;
}

export function PageHead({ title, badge, children }: PageHeadProps) {
  return (
    <header className="page-head">
      <h1>{title}</h1>
      {badge}
      <div className="actions">{children}</div>
    </header>
  );
}

export function Panel({ title, children, actions }: { title: string; children: ReactNode; actions?: ReactNode }) {
  return (
    <section className="panel">
      <header>
        <h2>{title}</h2>
        {actions}
      </header>
      {children}
    </section>
  );
}

interface BarProps {
  readonly label: string;
  readonly used: number;
  readonly total: number;
  readonly text: string;
  /** The label is not shown, because it is in the head of the column. */
  readonly isBare?: boolean;
  /** Full is the goal. */
  readonly isGoal?: boolean;
}

/** How much of something is used, as a bar with its figures. */
export function Bar({ label, used, total, text, isBare = false, isGoal = false }: BarProps) {
  const percent = total === 0 ? 0 : Math.min(100, (used / total) * 100);
  const tone = isGoal ? "good" : percent >= 95 ? "bad" : percent >= 80 ? "warn" : "good";
  return (
    <div className="bar">
      {!isBare && <span>{label}</span>}
      <span
        className={`track ${tone}`}
        role="meter"
        aria-label={label}
        aria-valuenow={Math.round(percent)}
        aria-valuemin={0}
        aria-valuemax={100}
      >
        <span style={{ width: `${percent}%` }} />
      </span>
      <span className="dim">{text}</span>
    </div>
  );
}

/** A link to a machine, by its name. */
export function MachineLink({ id, name }: { readonly id: string; readonly name: string | null }) {
  return (
    <Link to="/machines/$id/{-$tab}" params={{ id, tab: undefined }}>
      {name ?? id}
    </Link>
  );
}
