/**
 * Who is signed in, how the page looks, and the state of the installation.
 */
import { useQuery } from "@tanstack/react-query";
import { api } from "../api.ts";
import { findingsQuery, healthQuery } from "../data.ts";
import { renderCount, renderSeconds } from "../format.ts";
import { useSession } from "../session.tsx";
import { toggleTheme, useTheme } from "../theme.ts";
import { Badge, Button, Cli, ErrorNote, Facts, PageHead, Panel, Time } from "../ui/parts.tsx";

const SHORTCUTS = [
  ["Ctrl or ⌘ K", "search, and run an action"],
  ["Tab, Shift Tab", "the next thing, the one before"],
  ["Arrow keys", "between tabs, in menus and in the search"],
  ["Escape", "close what is open"],
] as const;

export function SettingsPage() {
  const session = useSession();
  const theme = useTheme();
  const health = useQuery(healthQuery);
  return (
    <>
      <title>Settings · Flotilla</title>
      <PageHead title="Settings" />
      <div className="panels">
        <Panel title="Signed in">
          <Facts
            rows={[
              ["Tenant", session.tenantName],
              ["Key", <code key="k">{session.subject}</code>],
              ["May", session.can("*") ? "everything" : session.scopes.join(" ")],
            ]}
          />
          <Button icon="out" onClick={() => void session.signOut()}>
            Sign out of this browser
          </Button>
          <Cli line="flotilla console" />
        </Panel>
        <Panel title="This page">
          <Facts rows={[["Theme", theme], ...SHORTCUTS]} />
          <Button icon={theme === "dark" ? "sun" : "moon"} onClick={toggleTheme}>
            {theme === "dark" ? "Use the light theme" : "Use the dark theme"}
          </Button>
        </Panel>
        <Panel title="Installation">
          <ErrorNote error={health.error} />
          <Facts
            rows={[
              ["Version", health.data?.version],
              ["Cluster", health.data && <code key="c">{health.data.clusterId}</code>],
              ["Up for", health.data && renderSeconds(health.data.uptimeSecs)],
              [
                "Database",
                health.data && (
                  <Badge key="d" tone={health.data.databaseUp ? "good" : "bad"}>
                    {health.data.databaseUp ? "up" : "down"}
                  </Badge>
                ),
              ],
              ["Nodes ready", health.data && `${health.data.nodesReady} of ${health.data.nodesTotal}`],
              [
                "API",
                <a key="a" href="/docs">
                  its description
                </a>,
              ],
            ]}
          />
        </Panel>
        {session.can("admin") && (
          <>
            <Doctor />
            <Loops />
            <Authorities />
          </>
        )}
      </div>
    </>
  );
}

/** A fingerprint of an authority is longer. */
const ID_LETTERS = 24;
const TONES = { ok: "good", warn: "warn", bad: "bad" } as const;

function Doctor() {
  const findings = useQuery(findingsQuery);
  return (
    <Panel
      title="Doctor"
      actions={
        <Button look="quiet" isBusy={findings.isFetching} onClick={() => void findings.refetch()}>
          Look again
        </Button>
      }
    >
      <ErrorNote error={findings.error} />
      <ul className="events">
        {(findings.data ?? []).map(({ code, subject, severity, message, action }) => (
          <li key={`${code} ${subject.id}`}>
            <Badge tone={TONES[severity]}>{severity}</Badge>
            <span className="grow">
              <strong>
                {subject.id === null ? subject.kind : `${subject.kind} ${subject.id.slice(0, ID_LETTERS)}`}
              </strong>
              : {message}
              {severity !== "ok" && <span className="dim block">{action}</span>}
            </span>
          </li>
        ))}
      </ul>
      <Cli line="flotilla doctor" />
    </Panel>
  );
}

/** The background work of the server that answers. */
function Loops() {
  const loops = useQuery({ queryKey: ["loops"], queryFn: ({ signal }) => api.listLoops({ signal }), staleTime: 0 });
  const failing = (loops.data?.loops ?? []).filter(({ failures }) => failures > 0);
  return (
    <Panel title="Background work">
      <ErrorNote error={loops.error} retry={() => void loops.refetch()} />
      {loops.data !== undefined && (
        <p className="dim">
          {renderCount(loops.data.loops.length, "loop")} of {loops.data.host},{" "}
          {failing.length === 0 ? "none of which has failed lately" : `${failing.length} of which failed last`}
        </p>
      )}
      <ul className="events">
        {failing.map(({ name, lastError }) => (
          <li key={name} className="error">
            <span className="grow">
              {name}
              <span className="dim block">{lastError}</span>
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** What servers and nodes trust each other by. */
function Authorities() {
  const read = useQuery({
    queryKey: ["nodes", "authorities"],
    queryFn: ({ signal }) => api.listFleetAuthorities({ signal }),
    retry: false,
  });
  return (
    <Panel title="Authorities of the fleet">
      <ErrorNote error={read.error} />
      <ul className="events">
        {(read.data ?? []).map(({ fingerprint, isSigning, expiresAt }) => (
          <li key={fingerprint}>
            <span className="grow">
              <code>{fingerprint.slice(0, 16)}…</code>
              <span className="dim block">
                until <Time at={expiresAt} isWhole />
              </span>
            </span>
            <Badge tone={isSigning ? "good" : "off"}>{isSigning ? "signs" : "trusted"}</Badge>
          </li>
        ))}
      </ul>
      <Cli line="flotilla authority ls" />
    </Panel>
  );
}
