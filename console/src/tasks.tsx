/**
 * The task panel: long work that runs or has just ended, at the bottom of every page.
 */
import type { Operation } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { operationsQuery } from "./data.ts";
import { Badge, Icon, Time, type Tone } from "./ui/parts.tsx";

const SHOWN = 8;

export const OPERATION_TONES: Readonly<Record<Operation["status"], Tone>> = {
  running: "busy",
  succeeded: "good",
  failed: "bad",
  canceled: "off",
};

/** The step that an operation is at, or how it ended. */
export function progressOf({ steps, error, status }: Operation): string {
  if (error !== null) return error;
  const running = steps.find((step) => step.status === "running");
  if (running !== undefined) return running.message ?? running.name;
  const done = steps.filter((step) => step.status === "succeeded").length;
  return status === "running" ? `${done} of ${steps.length} steps` : (steps.at(-1)?.message ?? "");
}

export function TaskPanel() {
  const [isOpen, setIsOpen] = useState(false);
  const operations = useQuery(operationsQuery);
  const all = operations.data ?? [];
  const running = all.filter(({ status }) => status === "running");
  const failed = all.filter(({ status }) => status === "failed").length;
  return (
    <section className={isOpen ? "tasks open" : "tasks"} aria-label="Tasks">
      <button type="button" className="tasks-head" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
        <Icon name="operations" />
        <span>Tasks</span>
        {running.length > 0 && <Badge tone="busy">{running.length} running</Badge>}
        {running[0] !== undefined && (
          <span className="dim now">
            {running[0].kind} {running[0].resource.name ?? running[0].resource.id}: {progressOf(running[0])}
          </span>
        )}
        {running.length === 0 && (
          <span className="dim now">{failed === 0 ? "nothing runs" : `${failed} failed lately`}</span>
        )}
      </button>
      {isOpen && (
        <div className="tasks-body">
          {all.length === 0 && <p className="dim">Long work appears here: moves, drains, image pulls, deploys.</p>}
          <ul>
            {all.slice(0, SHOWN).map((operation) => (
              <li key={operation.id}>
                <Badge tone={OPERATION_TONES[operation.status]}>{operation.status}</Badge>
                <Link to="/operations/$id" params={{ id: operation.id }}>
                  {operation.kind} {operation.resource.name ?? operation.resource.id}
                </Link>
                <span className="dim grow">{progressOf(operation)}</span>
                <span className="dim">
                  <Time at={operation.updatedAt} />
                </span>
              </li>
            ))}
          </ul>
          <footer>
            <Link to="/operations" className="button plain">
              All operations
            </Link>
          </footer>
        </div>
      )}
    </section>
  );
}
