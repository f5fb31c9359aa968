/**
 * What is around every page: navigation, search, the theme, the state of the stream, and the task panel.
 */
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { live } from "./live.ts";
import { PLACES } from "./navigation.ts";
import { Palette } from "./palette.tsx";
import { useAccount, useSession } from "./session.tsx";
import { TaskPanel } from "./tasks.tsx";
import { toggleTheme, useTheme } from "./theme.ts";
import { Messages } from "./ui/dialog.tsx";
import { Icon } from "./ui/parts.tsx";

const GROUPS = ["Work", "Fleet", "Account"] as const;
const IS_MAC = /Mac|iPhone|iPad/.test(navigator.userAgent);

export function Shell() {
  const session = useSession();
  const [isPaletteOpen, setIsPaletteOpen] = useState(false);
  const [isMenuOpen, setIsMenuOpen] = useState(false);
  const path = useRouterState({ select: ({ location }) => location.pathname });
  useEffect(() => (session.can("machine:read") ? live.start() : live.turnOff()), [session.subject]);
  useEffect(() => setIsMenuOpen(false), [path]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key.toLowerCase() !== "k" || !(event.metaKey || event.ctrlKey) || event.shiftKey) return;
      // Ctrl-K in a terminal is for the machine; Mod-K there has Shift, or another focus.
      if (!IS_MAC && event.target instanceof Element && event.target.closest(".xterm") !== null) return;
      event.preventDefault();
      setIsPaletteOpen((isOpen) => !isOpen);
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <div className={isMenuOpen ? "shell open" : "shell"}>
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <header className="top">
        <button
          type="button"
          className="button quiet menu-button"
          aria-label="Navigation"
          aria-expanded={isMenuOpen}
          onClick={() => setIsMenuOpen(!isMenuOpen)}
        >
          <Icon name={isMenuOpen ? "close" : "menu"} />
        </button>
        <Link to="/" className="brand" aria-label="Flotilla, overview">
          <img src="/console/icon.svg" alt="" width="24" height="24" />
          <span>Flotilla</span>
        </Link>
        <button type="button" className="search" onClick={() => setIsPaletteOpen(true)}>
          <Icon name="search" />
          <span>Search or run a command</span>
          <kbd>{IS_MAC ? "⌘" : "Ctrl "}K</kbd>
        </button>
        <LiveMark />
        <ThemeButton />
        <TenantMark />
      </header>
      <nav className="side" aria-label="Pages">
        {GROUPS.map((group) => (
          <NavGroup key={group} group={group} />
        ))}
        <button type="button" className="nav-item" onClick={() => void session.signOut()}>
          <Icon name="out" />
          Sign out
        </button>
      </nav>
      <Content path={path} />
      <TaskPanel />
      <Palette isOpen={isPaletteOpen} onClose={() => setIsPaletteOpen(false)} />
      <Messages />
    </div>
  );
}

function NavGroup({ group }: { readonly group: (typeof GROUPS)[number] }) {
  const session = useSession();
  const places = PLACES.filter((place) => place.group === group && (place.scope === null || session.can(place.scope)));
  if (places.length === 0) return null;
  return (
    <>
      <p className="nav-group">{group}</p>
      {places.map(({ to, name, icon }) => (
        <Link key={to} to={to} className="nav-item" activeOptions={{ exact: to === "/" }}>
          <Icon name={icon} />
          {name}
        </Link>
      ))}
    </>
  );
}

/** The page, whose title is announced when another one is opened. */
function Content({ path }: { readonly path: string }) {
  const main = useRef<HTMLElement>(null);
  const [said, setSaid] = useState("");
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) {
      isFirst.current = false;
      return undefined;
    }
    const asking = requestAnimationFrame(() => setSaid(main.current?.querySelector("h1")?.textContent ?? ""));
    return () => cancelAnimationFrame(asking);
  }, [path]);
  return (
    <main id="content" ref={main} tabIndex={-1}>
      <p className="hidden" aria-live="polite">
        {said}
      </p>
      <Outlet />
    </main>
  );
}

const LIVE_TEXTS = { live: "Live", connecting: "Connecting", paused: "Paused" } as const;

function LiveMark() {
  const state = useSyncExternalStore(live.subscribe, () => live.state);
  if (state === "off") return null;
  return (
    <span className={`live ${state}`} role="status" title="Changes appear as they happen">
      <span aria-hidden="true" />
      {LIVE_TEXTS[state]}
    </span>
  );
}

function ThemeButton() {
  const theme = useTheme();
  return (
    <button
      type="button"
      className="button quiet"
      aria-label={theme === "dark" ? "Light theme" : "Dark theme"}
      onClick={toggleTheme}
    >
      <Icon name={theme === "dark" ? "sun" : "moon"} />
    </button>
  );
}

function TenantMark() {
  const session = useSession();
  const account = useAccount();
  const isSuspended = account.data?.status === "suspended";
  return (
    <span className="tenant" title={`key ${session.subject}`}>
      {session.tenantName}
      {isSuspended && <span className="badge bad">suspended</span>}
    </span>
  );
}
