/**
 * A terminal in a machine, in the page.
 *
 * Always:
 * - It is opened with a size that was measured: a page that is not laid out yet has none.
 * - Output is bytes and goes to the terminal as it is; what is pasted is sent in pieces that the server takes.
 * - A connection that ends says why, and a key opens another one. The program has ended with the first.
 */
import { FitAddon } from "@xterm/addon-fit";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
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
/** The server takes messages of 1 MiB. */
const PIECE_BYTES = 64 * 1024;
const SCROLLBACK = 10_000;

type State = { readonly kind: "connecting" | "open" } | { readonly kind: "ended"; readonly why: string };

interface MachineTerminalProps {
  readonly machineId: string;
  readonly name: string;
}

export function MachineTerminal({ machineId, name }: MachineTerminalProps) {
  const place = useRef<HTMLDivElement>(null);
  const terminal = useRef<Terminal | null>(null);
  const theme = useTheme();
  const [state, setState] = useState<State>({ kind: "connecting" });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const { term, fit } = makeTerminal(element);
    terminal.current = term;
    const closing = new AbortController();
    const sizes = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientHeight > 0) fit.fit();
    });
    void whenLaidOut(element, closing.signal).then(() => {
      if (closing.signal.aborted) return;
      fit.fit();
      sizes.observe(element);
      connect({ term, machineId, signal: closing.signal, setState });
    });
    return () => {
      closing.abort();
      sizes.disconnect();
      term.dispose();
      terminal.current = null;
    };
  }, [machineId, attempt]);
  useEffect(() => {
    if (terminal.current !== null) terminal.current.options.theme = theme === "dark" ? DARK : LIGHT;
  }, [theme, attempt]);
  return (
    <div className="terminal">
      <div className="terminal-head">
        <span className={`live ${state.kind === "open" ? "live" : state.kind === "ended" ? "paused" : "connecting"}`}>
          <span aria-hidden="true" />
          {state.kind === "open" ? `Connected to ${name}` : state.kind === "ended" ? state.why : "Connecting"}
        </span>
        {state.kind === "ended" && (
          <Button
            look="main"
            autoFocus
            onClick={() => {
              setState({ kind: "connecting" });
              setAttempt(attempt + 1);
            }}
          >
            Open another
          </Button>
        )}
      </div>
      <div className="terminal-screen" ref={place} data-state={state.kind} />
    </div>
  );
}

function makeTerminal(element: HTMLElement): { readonly term: Terminal; readonly fit: FitAddon } {
  const term = new Terminal({
    allowProposedApi: true,
    cursorBlink: true,
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
  readonly signal: AbortSignal;
  readonly setState: (state: State) => void;
}

function connect({ term, machineId, signal, setState }: Connection): void {
  const { cols, rows } = term;
  const socket = api.openTerminal(machineId, { query: { cols, rows, env: ["TERM=xterm-256color"] }, signal });
  socket.binaryType = "arraybuffer";
  const encoder = new TextEncoder();
  let exitCode: number | null = null;
  let wasOpen = false;
  const send = (bytes: Uint8Array<ArrayBuffer>): void => {
    if (socket.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) socket.send(bytes.subarray(at, at + PIECE_BYTES));
  };
  const parts = [
    term.onData((text) => send(encoder.encode(text))),
    term.onBinary((text) => send(Uint8Array.from(text, (character) => character.charCodeAt(0)))),
    term.onResize((size) => {
      if (socket.readyState === WebSocket.OPEN)
        socket.send(JSON.stringify({ type: "resize", cols: size.cols, rows: size.rows }));
    }),
  ];
  socket.addEventListener("open", () => {
    wasOpen = true;
    setState({ kind: "open" });
    // It may have been resized while the machine started.
    if (term.cols !== cols || term.rows !== rows)
      socket.send(JSON.stringify({ type: "resize", cols: term.cols, rows: term.rows }));
    term.focus();
  });
  socket.addEventListener("message", ({ data }: MessageEvent<ArrayBuffer | string>) => {
    if (typeof data === "string") exitCode = exitOf(data);
    else term.write(new Uint8Array(data));
  });
  socket.addEventListener("close", ({ reason }) => {
    for (const part of parts) part.dispose();
    if (signal.aborted) return;
    if (exitCode !== null) return setState({ kind: "ended", why: `The program ended with exit code ${exitCode}` });
    if (reason !== "" || wasOpen) return setState({ kind: "ended", why: reason || "The connection was lost" });
    void whyNot(machineId, signal).then((why) => !signal.aborted && setState({ kind: "ended", why }));
  });
}

function exitOf(text: string): number | null {
  const message = JSON.parse(text) as { readonly type?: unknown; readonly code?: unknown };
  return message.type === "exit" && typeof message.code === "number" ? message.code : null;
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
