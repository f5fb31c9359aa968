/**
 * How a rollout does: what it waits for, who gets the traffic, and where the instances are.
 */
import type { AppInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { appExplanationQuery } from "../data.ts";
import { renderCount } from "../format.ts";
import { Badge, Cli, Empty, Facts, MachineLink, Panel, Time, type Tone } from "../ui/parts.tsx";
import { servingOf } from "./apps.tsx";

const INSTANCE_TONES: Readonly<Record<AppInfo["instances"][number]["status"], Tone>> = {
  starting: "busy",
  healthy: "good",
  unhealthy: "bad",
  draining: "busy",
  stopped: "off",
  failed: "bad",
  lost: "bad",
};

export function RolloutTab({ app }: { readonly app: AppInfo }) {
  const why = useQuery(appExplanationQuery(app.name));
  const { rollout } = app;
  return (
    <div className="panels">
      <Panel title={rollout === null ? "Now" : `Release ${rollout.to} is rolled out`}>
        {rollout !== null && (
          <>
            <Phases phase={rollout.phase} />
            <p>{rollout.message}</p>
          </>
        )}
        <Facts
          rows={[
            ["Waits for", rollout?.waitingFor ?? why.data?.waitingFor],
            ["Rolled back", rollout?.deadline && <Time key="d" at={rollout.deadline} />],
            ["Begun", rollout && <Time key="b" at={rollout.startedAt} />],
            [
              "Operation",
              rollout && (
                <Link key="o" to="/operations/$id" params={{ id: rollout.operationId }}>
                  its steps
                </Link>
              ),
            ],
            ["Serving", `${servingOf(app)} of ${app.replicas} instances`],
            ["Release", app.release],
            ["Image", app.image],
            ["Failures in a row", why.data?.failures === 0 ? null : why.data?.failures],
            ["Last failure", why.data?.lastFailure],
            ["Tried again", why.data?.retryAt && <Time key="r" at={why.data.retryAt} />],
          ]}
        />
        {(why.data?.next.length ?? 0) > 0 && (
          <>
            <p className="dim small">What happens next</p>
            <ol className="events">
              {why.data?.next.map((line) => (
                <li key={line}>{line}</li>
              ))}
            </ol>
          </>
        )}
        <Cli line={`flotilla app explain ${app.name}`} />
      </Panel>
      <Panel title="Traffic and instances">
        <Traffic app={app} />
        <Topology app={app} sentences={new Map(why.data?.instances.map(({ id, sentence }) => [id, sentence]))} />
      </Panel>
    </div>
  );
}

const PHASES = [
  ["placing", "Start"],
  ["checking", "Check"],
  ["routing", "Route"],
  ["retiring", "Retire"],
] as const;

/** The phases of a batch, with the one that it is in. */
function Phases({ phase }: { readonly phase: NonNullable<AppInfo["rollout"]>["phase"] }) {
  const at = PHASES.findIndex(([name]) => name === phase);
  return (
    <ol className="phases" aria-label="Phases">
      {PHASES.map(([name, text], index) => (
        <li key={name} className={index < at ? "done" : ""} aria-current={name === phase ? "step" : undefined}>
          {text}
        </li>
      ))}
      {at === -1 && (
        <li aria-current="step">
          {phase === "awaitingPromotion" ? "Awaits promotion" : phase === "pausing" ? "Pauses" : "Rolled back"}
        </li>
      )}
    </ol>
  );
}

/** Which share of the requests each release gets: instances that serve get the same each. */
function Traffic({ app }: { readonly app: AppInfo }) {
  const serving = app.instances.filter(({ isServing }) => isServing);
  const byRelease = [...Map.groupBy(serving, ({ generation }) => generation)].toSorted(([a], [b]) => a - b);
  const newest = Math.max(...app.instances.map(({ generation }) => generation));
  return (
    <figure className="traffic">
      <figcaption>
        <a href={app.url} target="_blank" rel="noreferrer noopener">
          {app.url.replace(/^https?:\/\//, "")}
        </a>{" "}
        {app.domain !== null && <span className="dim">and {app.domain} </span>}
        <span className="dim">{serving.length === 0 ? "is served by none" : "is served by"}</span>
      </figcaption>
      <div className="shares">
        {byRelease.map(([generation, instances]) => (
          <div
            key={generation}
            className={generation === newest ? "share new" : "share"}
            style={{ flexGrow: instances.length }}
          >
            <strong>release {generation}</strong> {Math.round((instances.length / serving.length) * 100)} %
          </div>
        ))}
      </div>
    </figure>
  );
}

interface TopologyProps {
  readonly app: AppInfo;
  readonly sentences: ReadonlyMap<string, string>;
}

/** Instances by node, and which of them get requests. */
function Topology({ app, sentences }: TopologyProps) {
  const byNode = [...Map.groupBy(app.instances, ({ nodeId }) => nodeId)].toSorted(([a], [b]) => a.localeCompare(b));
  if (app.instances.length === 0)
    return (
      <Empty title="No instance" cli={`flotilla app scale ${app.name} 1`}>
        Scale the app to have some.
      </Empty>
    );
  return (
    <div className="topology">
      {byNode.map(([nodeId, instances]) => (
        <section key={nodeId} aria-label={nodeId === "" ? "Not placed yet" : `On ${nodeId}`}>
          <h3>{nodeId === "" ? "not placed yet" : nodeId}</h3>
          {instances.map((instance) => (
            <div key={instance.id} className={instance.isServing ? "instance serving" : "instance"}>
              <Badge tone={INSTANCE_TONES[instance.status]}>{instance.status}</Badge>
              <MachineLink id={instance.machineId} name={instance.id.slice(-8)} />
              <span className="dim small">
                release {instance.generation}
                {!instance.isServing && ", no requests"}
                {instance.openRequests > 0 && `, ${renderCount(instance.openRequests, "open request")}`}
              </span>
              {(instance.reason ?? sentences.get(instance.id)) !== undefined && instance.status !== "healthy" && (
                <span className="dim small block">{instance.reason ?? sentences.get(instance.id)}</span>
              )}
            </div>
          ))}
        </section>
      ))}
    </div>
  );
}
