/**
 * Dark or light: as the system says, unless the reader has chosen. Kept in this browser only.
 */
import { useSyncExternalStore } from "react";

type Theme = "dark" | "light";

const STORED = "flotilla-theme";
const systemIsLight = matchMedia("(prefers-color-scheme: light)");
const changes = new EventTarget();

function current(): Theme {
  const chosen = localStorage.getItem(STORED);
  if (chosen === "dark" || chosen === "light") return chosen;
  return systemIsLight.matches ? "light" : "dark";
}

/** Shows the page in the theme, now and when it changes. */
export function applyTheme(): void {
  const apply = (): void => {
    document.documentElement.dataset["theme"] = current();
    changes.dispatchEvent(new Event("change"));
  };
  systemIsLight.addEventListener("change", apply);
  apply();
}

export function toggleTheme(): void {
  localStorage.setItem(STORED, current() === "dark" ? "light" : "dark");
  document.documentElement.dataset["theme"] = current();
  changes.dispatchEvent(new Event("change"));
}

export const useTheme = (): Theme =>
  useSyncExternalStore((listener) => {
    changes.addEventListener("change", listener);
    return () => changes.removeEventListener("change", listener);
  }, current);
