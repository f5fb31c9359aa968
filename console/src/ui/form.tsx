/**
 * A form in a dialog: it waits for the server, and says what was refused at the field that it is about.
 *
 * Always: it stays open, with what was typed, until the server has done what was asked; it is empty again when
 * it is opened the next time.
 */
import { FlotillaError } from "@flotilla/sdk";
import { type ReactNode, type SyntheticEvent, type TextareaHTMLAttributes, useId, useState } from "react";
import { Sheet } from "./dialog.tsx";
import { Button, Cli, ErrorNote } from "./parts.tsx";

/** Why the server refused a field of the request; null: it did not. */
export type FaultOf = (field: string) => string | null;

interface FormSheetProps {
  readonly title: string;
  readonly verb: string;
  /** What is lost is named in its text. */
  readonly isDanger?: boolean;
  readonly cli?: string;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  /** Closes the form unless it returns `stay`, or throws. */
  readonly act: () => Promise<unknown>;
  readonly children: ReactNode | ((faultOf: FaultOf) => ReactNode);
}

export function FormSheet(props: FormSheetProps) {
  return (
    <Sheet title={props.title} isOpen={props.isOpen} onClose={props.onClose}>
      {props.isOpen && <Body {...props} />}
    </Sheet>
  );
}

function Body({ verb, isDanger = false, cli, onClose, act, children }: FormSheetProps) {
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setIsBusy(true);
    setError(null);
    try {
      if ((await act()) !== "stay") onClose();
    } catch (failed) {
      setError(failed);
    } finally {
      setIsBusy(false);
    }
  };
  const { content, isShown } = withFaults(children, error);
  return (
    <form className="body" onSubmit={(event) => void submit(event)}>
      {content}
      <ErrorNote error={isShown ? null : error} />
      {cli !== undefined && <Cli line={cli} />}
      <footer>
        <Button onClick={onClose}>Close</Button>
        <Button look={isDanger ? "danger" : "main"} type="submit" isBusy={isBusy}>
          {verb}
        </Button>
      </footer>
    </form>
  );
}

/** The content with the refusal at its field; `isShown`: a field of it shows the refusal. */
function withFaults(
  children: FormSheetProps["children"],
  error: unknown,
): { readonly content: ReactNode; readonly isShown: boolean } {
  if (typeof children !== "function") return { content: children, isShown: false };
  const asked = new Set<string>();
  const { faultOf } = refusalAt(error);
  const content = children((field) => {
    asked.add(field);
    return faultOf(field);
  });
  return { content, isShown: asked.has(fieldOf(error) ?? "") };
}

/** Where a refusal is shown: at one of the fields, or, as `rest`, beside all of them. */
export function refusalAt(
  error: unknown,
  fields: readonly string[] = [],
): { readonly faultOf: FaultOf; readonly rest: unknown } {
  const refused = fieldOf(error);
  const faultOf: FaultOf = (field) => (error instanceof FlotillaError && field === refused ? error.text : null);
  return { faultOf, rest: refused !== null && fields.includes(refused) ? null : error };
}

/** The field of the request that a refusal is about; null: it names none. */
function fieldOf(error: unknown): string | null {
  if (!(error instanceof FlotillaError)) return null;
  const { code, details } = error;
  if (code === "name_taken") return "name";
  return details.field?.split(/[./]/)[0] ?? (code.startsWith("image_") ? "image" : null);
}

interface AreaProps extends Omit<TextareaHTMLAttributes<HTMLTextAreaElement>, "id"> {
  readonly label: string;
  readonly hint?: ReactNode;
  /** Why the value is refused; null: it is not. */
  readonly fault?: string | null;
}

/** A field of several lines. */
export function Area({ label, hint, fault = null, ...rest }: AreaProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <textarea
        id={id}
        rows={3}
        spellCheck={false}
        aria-invalid={fault !== null}
        aria-describedby={`${id}-text`}
        {...rest}
      />
      <p id={`${id}-text`} className={fault === null ? "dim small" : "fault small"}>
        {fault ?? hint}
      </p>
    </div>
  );
}

interface CheckProps {
  readonly label: ReactNode;
  readonly isChecked: boolean;
  readonly onChange: (isChecked: boolean) => void;
}

export function Check({ label, isChecked, onChange }: CheckProps) {
  return (
    <label className="check">
      <input type="checkbox" checked={isChecked} onChange={(event) => onChange(event.target.checked)} />
      {label}
    </label>
  );
}

/** The text of a number that may be left empty, as the API takes it. */
export const numberOrNull = (text: string): number | null => (text.trim() === "" ? null : Number(text));
