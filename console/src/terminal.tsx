/**
 * A terminal in a machine, in the page.
 *
 * Always:
 * - It is opened with a size that was measured: a page that is not laid out yet has none.
 * - Output is bytes and goes to the terminal as it is; what is pasted is sent in pieces that the server takes.
 * - A connection that is lost is opened again for a minute, which the page says meanwhile, and nothing is lost.
 *   A page that is loaded again finds its terminal. One that has ended says why.
 * - Who has its link may read along, and types, resizes and ends nothing.
 */
import { FitAddon } from "@xterm/addon-fit";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import type { KeptTerminal, TerminalState } from "@flotilla/sdk";
import { useEffect, useRef, useState } from "react";
import { api } from "./api.ts";
import { useTheme } from "./theme.ts";
import { Button } from "./ui/parts.tsx";

const DARK: ITheme = {
  background: "#0b0f16",
  foreground: "#dbe2ec",
  cursor: "#7db0ff",
  selectionBackground: "#2d4a78",
};
const LIGHT: ITheme = {
  ...{ background: "#ffffff", foreground: "#1a2330", cursor: "#1f5fd0", selectionBackground: "#b8d3ff" },
  ...{ black: "#1a2330", red: "#b3261e", green: "#1e6b32", yellow: "#7a5200", blue: "#1f5fd0", magenta: "#8a2fa8" },
  ...{ cyan: "#0b6a75", white: "#5a6675", brightBlack: "#5a6675", brightWhite: "#1a2330" },
};
/** What xterm answers by itself to a program that asks: not again for output that is shown again. */
// oxlint-disable-next-line no-control-regex -- they begin with an escape
const REPORT = /^\u001b\[[\d;?>]*[Rcn]$/;
const SCROLLBACK = 10_000;

type State = TerminalState | { readonly kind: "refused"; readonly why: string };

interface MachineTerminalProps {
  readonly machineId: string;
  readonly name: string;
  /** The terminal that is only read; empty: the page has its own. */
  readonly watched: string;
}

export function MachineTerminal({ machineId, name, watched }: MachineTerminalProps) {
  const place = useRef<HTMLDivElement>(null);
  const terminal = useRef<Terminal | null>(null);
  const theme = useTheme();
  const [state, setState] = useState<State>({ kind: "connecting" });
  const [id, setId] = useState("");
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const { term, fit } = makeTerminal(element, watched !== "");
    terminal.current = term;
    const closing = new AbortController();
    const sizes = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientHeight > 0) fit.fit();
    });
    void whenLaidOut(element, closing.signal).then(() => {
      if (closing.signal.aborted) return;
      fit.fit();
      sizes.observe(element);
      connect({ term, machineId, watched, signal: closing.signal, setState, setId });
    });
    return () => {
      closing.abort();
      sizes.disconnect();
      term.dispose();
      terminal.current = null;
    };
  }, [machineId, watched, attempt]);
  useEffect(() => {
    if (terminal.current !== null) terminal.current.options.theme = theme === "dark" ? DARK : LIGHT;
  }, [theme, attempt]);
  const isOver = state.kind === "ended" || state.kind === "refused";
  const again = (): void => {
    setState({ kind: "connecting" });
    setAttempt(attempt + 1);
  };
  const copyLink = (): void => {
    const link = new URL(`?watch=${id}`, location.href);
    void navigator.clipboard.writeText(link.href);
  };
  return (
    <div className="terminal">
      <div className="terminal-head">
        <span role="status" className={`live ${state.kind === "open" ? "live" : isOver ? "paused" : "connecting"}`}>
          <span aria-hidden="true" />
          {textOf(state, name, watched !== "")}
        </span>
        {state.kind === "open" && watched === "" && <Button onClick={copyLink}>Copy link for watching</Button>}
        {isOver && watched === "" && (
          <Button look="main" autoFocus onClick={again}>
            Open another
          </Button>
        )}
      </div>
      <div className="terminal-screen" ref={place} data-state={state.kind} />
    </div>
  );
}

function textOf(state: State, name: string, isWatched: boolean): string {
  switch (state.kind) {
    case "connecting":
      return "Connecting";
    case "open":
      return isWatched ? `Watching a terminal of ${name}: nothing can be typed here` : `Connected to ${name}`;
    case "lost":
      return "The connection was lost and is being opened again; nothing is lost for a minute";
    case "refused":
      return state.why;
    case "ended":
      return state.exitCode === null ? state.reason : `The program ended with exit code ${state.exitCode}`;
  }
}

function makeTerminal(element: HTMLElement, isWatched: boolean): { readonly term: Terminal; readonly fit: FitAddon } {
  const term = new Terminal({
    allowProposedApi: true,
    cursorBlink: !isWatched,
    disableStdin: isWatched,
    fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    fontSize: 13,
    scrollback: SCROLLBACK,
    screenReaderMode: true,
    minimumContrastRatio: 4.5,
    theme: DARK,
  });
  const fit = new FitAddon();
  term.loadAddon(fit);
  term.loadAddon(new Unicode11Addon());
  term.unicode.activeVersion = "11";
  // What a machine prints is a link only for a click, opens beside the console, and gets no handle of it.
  term.loadAddon(new WebLinksAddon((_, url) => void open(url, "_blank", "noopener,noreferrer")));
  term.open(element);
  term.attachCustomKeyEventHandler((event) => {
    const copies = event.type === "keydown" && event.ctrlKey && event.shiftKey && event.code === "KeyC";
    if (!copies || !term.hasSelection()) return true;
    event.preventDefault();
    void navigator.clipboard.writeText(term.getSelection());
    return false;
  });
  return { term, fit };
}

function whenLaidOut(element: HTMLElement, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const observer = new ResizeObserver(() => {
      if (element.clientWidth === 0 || element.clientHeight === 0) return;
      observer.disconnect();
      resolve();
    });
    signal.addEventListener("abort", () => {
      observer.disconnect();
      resolve();
    });
    observer.observe(element);
  });
}

interface Connection {
  readonly term: Terminal;
  readonly machineId: string;
  readonly watched: string;
  /** Aborted when the page leaves the terminal. */
  readonly signal: AbortSignal;
  readonly setState: (state: State) => void;
  readonly setId: (id: string) => void;
}

/** The terminal of this tab of the browser, which a page that is loaded again continues. */
const keyOf = (machineId: string): string => `terminal ${machineId}`;

function connect(connection: Connection): void {
  const { machineId, watched, signal } = connection;
  if (watched !== "")
    return void follow(connection, (onState) => api.viewTerminal(machineId, watched, { onState }), true);
  const known = sessionStorage.getItem(keyOf(machineId));
  const isFound = known === null ? Promise.resolve(false) : follow(connection, keep(connection, known), true);
  void isFound.then((found) => {
    if (!found && !signal.aborted) void follow(connection, keep(connection), false);
  });
}

type Open = (onState: (state: TerminalState) => void) => KeptTerminal;

const keep =
  ({ term, machineId }: Connection, terminal?: string): Open =>
  (onState) => {
    const query = { cols: term.cols, rows: term.rows, env: ["TERM=xterm-256color"] };
    const kept = api.keepTerminal(machineId, { query, onState, ...(terminal !== undefined && { terminal }) });
    sessionStorage.setItem(keyOf(machineId), kept.id);
    return kept;
  };

/** Shows a terminal until it has ended. False: it was not there. */
async function follow({ term, signal, ...connection }: Connection, open: Open, isContinued: boolean): Promise<boolean> {
  const { machineId, watched, setState, setId } = connection;
  let wasOpen = false;
  let isShownAgain = isContinued;
  const kept = open((state) => {
    if (signal.aborted) return;
    if (state.kind === "open" && !wasOpen) {
      wasOpen = true;
      term.focus();
    }
    if (state.kind !== "ended") setState(state);
  });
  setId(kept.id);
  const type = (data: string | Uint8Array<ArrayBuffer>): void => {
    if (watched === "") void kept.write(data);
  };
  const onOnline = (): void => kept.reconnect();
  const parts = [
    term.onData((text) => (isShownAgain && REPORT.test(text) ? undefined : type(text))),
    term.onBinary((text) => type(Uint8Array.from(text, (character) => character.charCodeAt(0)))),
    term.onResize(({ cols, rows }) => kept.resize({ cols, rows })),
  ];
  signal.addEventListener("abort", () => kept.leave(), { once: true });
  window.addEventListener("online", onOnline);
  for await (const bytes of kept) {
    // The program waits for a page that does not keep up.
    await new Promise<void>((resolve) => term.write(bytes, resolve));
    isShownAgain = false;
  }
  const end = await kept.ended;
  window.removeEventListener("online", onOnline);
  for (const part of parts) part.dispose();
  if (signal.aborted) return true;
  if (watched === "") sessionStorage.removeItem(keyOf(machineId));
  if (!wasOpen && isContinued && watched === "") return false;
  if (wasOpen || end.exitCode !== null || end.reason !== "") setState({ kind: "ended", ...end });
  else setState({ kind: "refused", why: await whyNot(machineId, signal) });
  return true;
}

/** A WebSocket hides the answer that refused it. A command is refused for the same reasons, and says why. */
async function whyNot(machineId: string, signal: AbortSignal): Promise<string> {
  try {
    await api.exec(machineId, { command: ["true"] }, { signal });
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return "No terminal could be opened, although commands run there; try again";
}
