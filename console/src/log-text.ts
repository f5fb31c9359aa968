/**
 * Lines of a log as they would look on a terminal: colours, and what a carriage return overwrites. Pure.
 *
 * Always: no character of a line becomes markup, breaks the line or turns the direction of others; a line is
 * cut at SHOWN_MAX characters until it is asked for whole.
 */

/** A part of a line that looks the same. */
export interface Piece {
  readonly text: string;
  /** Names of classes, such as `ansi-1 bold`. */
  readonly look: string;
  /** A text that was searched for. */
  readonly isHit?: true;
}

export const SHOWN_MAX = 1_000;

// oxlint-disable-next-line no-control-regex -- the pattern is for control characters
const SEQUENCE = /\u001b\[([0-9;:]*)([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[@-Z\\-_]/g;
// oxlint-disable-next-line no-control-regex -- the pattern is for control characters
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** What is left of a line after its carriage returns: each later part overwrites the beginning. */
export function overwritten(line: string): string {
  if (!line.includes("\r")) return line;
  const parts = line.split("\r").filter((part) => part !== "");
  // With colours the lengths are not those of the text, and progress bars write whole lines.
  if (line.includes("\u001b")) return parts.at(-1) ?? "";
  return parts.reduce((shown, part) => part + shown.slice(part.length), "");
}

/** The line as pieces; `isWhole`: also what is beyond SHOWN_MAX. */
export function piecesOf(line: string, isWhole = false): readonly Piece[] {
  const shown = overwritten(line);
  const text = isWhole ? shown : shown.slice(0, SHOWN_MAX);
  if (!text.includes("\u001b")) return [{ text: text.replace(CONTROLS, "�"), look: "" }];
  const pieces: Piece[] = [];
  const look = { colour: "", back: "", isBold: false, isDim: false };
  let at = 0;
  const add = (until: number): void => {
    const part = text.slice(at, until).replace(CONTROLS, "�");
    const classes = [look.colour, look.back, look.isBold ? "bold" : "", look.isDim ? "faint" : ""];
    if (part !== "") pieces.push({ text: part, look: classes.filter(Boolean).join(" ") });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(match.index);
    at = match.index + match[0].length;
    if (match[2] === "m") apply(look, (match[1] ?? "").split(/[;:]/).map(Number));
  }
  add(text.length);
  return pieces;
}

/** The pieces with each occurrence of a text, which is in lower case, as separate pieces. */
export function marked(pieces: readonly Piece[], wanted: string): readonly Piece[] {
  if (wanted === "") return pieces;
  const whole = pieces.map(({ text }) => text).join("");
  const lower = whole.toLowerCase();
  // Some letters have another length in lower case; then places would be wrong.
  if (lower.length !== whole.length || !lower.includes(wanted)) return pieces;
  const result: Piece[] = [];
  let start = 0;
  let hit = lower.indexOf(wanted);
  for (const { text, look } of pieces) {
    const end = start + text.length;
    let at = start;
    while (at < end) {
      const hitEnd = hit + wanted.length;
      if (hit >= 0 && hitEnd <= at) hit = lower.indexOf(wanted, hitEnd);
      else {
        const isHit = hit >= 0 && hit <= at;
        const until = Math.min(end, isHit ? hitEnd : hit < 0 ? end : hit);
        result.push({ text: whole.slice(at, until), look, ...(isHit ? { isHit } : {}) });
        at = until;
      }
    }
    start = end;
  }
  return result;
}

interface Look {
  colour: string;
  back: string;
  isBold: boolean;
  isDim: boolean;
}

/** Applies the codes of one sequence. */
function apply(look: Look, codes: readonly number[]): void {
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 0) Object.assign(look, { colour: "", back: "", isBold: false, isDim: false });
    else if (code === 1) look.isBold = true;
    else if (code === 2) look.isDim = true;
    else if (code === 22) Object.assign(look, { isBold: false, isDim: false });
    else if (code >= 30 && code <= 37) look.colour = `ansi-${code - 30}`;
    else if (code >= 90 && code <= 97) look.colour = `ansi-${code - 82}`;
    else if (code === 39) look.colour = "";
    else if (code >= 40 && code <= 47) look.back = `back-${code - 40}`;
    else if (code >= 100 && code <= 107) look.back = `back-${code - 92}`;
    else if (code === 49) look.back = "";
    else if (code === 38 || code === 48) {
      // One of 256, of which the first 16 are shown, or red, green and blue.
      const index = codes[at + 1] === 5 ? (codes[at + 2] ?? -1) : -1;
      if (index >= 0 && index < 16) look[code === 38 ? "colour" : "back"] = `${code === 38 ? "ansi" : "back"}-${index}`;
      at += codes[at + 1] === 5 ? 2 : 4;
    }
  }
}
