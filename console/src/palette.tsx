/**
 * The palette: finds pages, machines, apps and actions by what is typed. Mod-K opens it.
 *
 * Always: it is a combobox, so screen readers say what is chosen; at most RESULTS_MAX are shown.
 */
import { Dialog } from "@base-ui/react/dialog";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useMemo, useState } from "react";
import { appsQuery, machinesQuery } from "./data.ts";
import { PLACES } from "./navigation.ts";
import { useSession } from "./session.tsx";
import { toggleTheme } from "./theme.ts";
import { Icon, type IconName } from "./ui/parts.tsx";

const RESULTS_MAX = 30;

interface Result {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly icon: IconName;
  readonly run: () => void;
}

export function Palette({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  return (
    <Dialog.Root open={isOpen} onOpenChange={(open) => !open && onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="backdrop" />
        <Dialog.Popup className="palette" aria-label="Search">
          <PaletteContent onClose={onClose} />
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function PaletteContent({ onClose }: { readonly onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const results = useResults(text);
  useEffect(() => setAt(0), [text]);
  const run = (result: Result | undefined): void => {
    if (result === undefined) return;
    onClose();
    result.run();
  };
  const onKey = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && results.length > 0) {
      event.preventDefault();
      setAt((at + step + results.length) % results.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(results[at]);
    }
  };
  return (
    <>
      <input
        role="combobox"
        aria-label="Search pages, machines, apps and actions"
        aria-expanded="true"
        aria-controls="palette-results"
        aria-activedescendant={results[at] === undefined ? undefined : `result-${at}`}
        placeholder="A machine, an app, a page or an action"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKey}
        autoComplete="off"
        spellCheck={false}
      />
      <ul id="palette-results" role="listbox" aria-label="Results">
        {results.map((result, index) => (
          <li
            key={result.id}
            id={`result-${index}`}
            role="option"
            aria-selected={index === at}
            ref={(element) => {
              if (index === at) element?.scrollIntoView({ block: "nearest" });
            }}
            onPointerMove={() => setAt(index)}
            onClick={() => run(result)}
          >
            <Icon name={result.icon} />
            <span>{result.name}</span>
            <span className="dim small">{result.kind}</span>
          </li>
        ))}
      </ul>
      {results.length === 0 && <p className="dim none">Nothing is called so.</p>}
    </>
  );
}

function useResults(text: string): readonly Result[] {
  const session = useSession();
  const navigate = useNavigate();
  const machines = useQuery({ ...machinesQuery, enabled: session.can("machine:read") });
  const apps = useQuery(appsQuery);
  return useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const fits = (...names: readonly (string | null)[]): boolean =>
      names.some((name) => name?.toLowerCase().includes(wanted) === true);
    const actions: Result[] = [
      ...(session.can("machine:create")
        ? [
            {
              id: "create",
              name: "Create machine",
              kind: "action",
              icon: "plus" as const,
              run: () => void navigate({ to: "/machines/create" }),
            },
          ]
        : []),
      ...(session.can("app:write")
        ? [
            {
              id: "deploy",
              name: "Deploy app",
              kind: "action",
              icon: "plus" as const,
              run: () => void navigate({ to: "/apps/deploy" }),
            },
          ]
        : []),
      { id: "theme", name: "Change the theme", kind: "action", icon: "moon", run: toggleTheme },
      { id: "out", name: "Sign out", kind: "action", icon: "out", run: () => void session.signOut() },
    ];
    const pages: Result[] = PLACES.filter(({ scope }) => scope === null || session.can(scope)).map(
      ({ to, name, icon }) => ({ id: to, name, kind: "page", icon, run: () => void navigate({ to }) }),
    );
    const found: Result[] = [...pages, ...actions].filter(({ name }) => fits(name));
    for (const { id, name, state } of machines.data ?? []) {
      if (found.length >= RESULTS_MAX) break;
      if (wanted !== "" && fits(name, id))
        found.push({
          ...{ id, name: name ?? id, kind: `machine, ${state}`, icon: "machines" },
          run: () => void navigate({ to: "/machines/$id/{-$tab}", params: { id, tab: undefined } }),
        });
    }
    for (const { id, name, status } of apps.data ?? []) {
      if (found.length >= RESULTS_MAX) break;
      if (wanted !== "" && fits(name, id))
        found.push({
          ...{ id, name, kind: `app, ${status}`, icon: "apps" },
          run: () => void navigate({ to: "/apps/$name", params: { name } }),
        });
    }
    return found.slice(0, RESULTS_MAX);
  }, [text, machines.data, apps.data, session.subject, navigate]);
}
