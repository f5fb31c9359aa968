/**
 * What can be done with an app. Every act is an operation, which the task panel shows.
 */
import type { AppInfo, ShareInfo } from "@flotilla/sdk";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { renderCount } from "../format.ts";
import { useSession } from "../session.tsx";
import { ActionMenu, attempt, Confirm, type MenuEntry } from "../ui/dialog.tsx";
import { FormSheet } from "../ui/form.tsx";
import { Button, Cli, CopyButton, Field } from "../ui/parts.tsx";

const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["apps"] });

type Asking = "scale" | "share" | "rollback" | "destroy";

export function AppActions({ app }: { readonly app: AppInfo }) {
  const session = useSession();
  const navigate = useNavigate();
  const [asking, setAsking] = useState<Asking | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  if (!session.can("app:write")) return null;
  const { name } = app;
  const act = async (what: string, call: () => Promise<unknown>): Promise<void> => {
    setBusy(what);
    await attempt(`${what} of ${name}`, async () => {
      await call();
      await again();
    });
    setBusy(null);
  };
  const entries: readonly MenuEntry[] = [
    { name: "Redeploy", run: () => void act("Redeploy", () => api.redeployApp(name)) },
    ...(app.release === null ? [] : [{ name: "Roll back", run: () => setAsking("rollback") }]),
    { name: "Share link", run: () => setAsking("share") },
    { name: "Destroy", isDanger: true, run: () => setAsking("destroy") },
  ];
  const close = (): void => setAsking(null);
  return (
    <>
      {app.status === "awaitingPromotion" && (
        <Button
          look="main"
          isBusy={busy === "Promotion"}
          onClick={() => void act("Promotion", () => api.promoteApp(name))}
        >
          Promote
        </Button>
      )}
      <Button onClick={() => void navigate({ to: "/apps/deploy", search: { app: name } })}>Deploy</Button>
      <Button onClick={() => setAsking("scale")}>Scale</Button>
      <ActionMenu label={`More for ${name}`} entries={entries} />
      {asking === "scale" && <Scale app={app} onClose={close} />}
      {asking === "share" && <Share app={app} onClose={close} />}
      <RollBack app={app} release={null} isOpen={asking === "rollback"} onClose={close} />
      <Confirm
        title={`Destroy ${name}?`}
        verb="Destroy"
        isOpen={asking === "destroy"}
        onClose={close}
        act={async () => {
          await api.destroyApp(name);
          await navigate({ to: "/apps" });
          await again();
        }}
      >
        <p>
          {renderCount(app.instances.length, "instance")} and what they have written to their disks are lost, with all
          releases, and {app.url} answers no more.
        </p>
        <Cli line={`flotilla app rm ${name}`} />
      </Confirm>
    </>
  );
}

interface FormProps {
  readonly app: AppInfo;
  readonly onClose: () => void;
}

interface RollBackProps extends FormProps {
  /** null: the one before the present one. */
  readonly release: number | null;
  readonly isOpen: boolean;
}

/** Asks before an earlier release is deployed again. */
export function RollBack({ app, release, ...dialog }: RollBackProps) {
  const to = release === null ? "the release before" : `release ${release}`;
  return (
    <Confirm
      title={`Roll ${app.name} back to ${to}?`}
      verb="Roll back"
      act={async () => {
        await api.rollbackApp(app.name, release === null ? {} : { release });
        await again();
      }}
      {...dialog}
    >
      <p>
        Its inputs are deployed again as a new release, with the same strategy. Instances are replaced, and what they
        have written to their disks is lost.
      </p>
      <Cli line={`flotilla app rollback ${app.name}${release === null ? "" : ` --release ${release}`}`} />
    </Confirm>
  );
}

function Scale({ app, onClose }: FormProps) {
  const [count, setCount] = useState(String(app.replicas));
  return (
    <FormSheet
      title={`Scale ${app.name}`}
      verb="Scale"
      cli={`flotilla app scale ${app.name} ${count}`}
      isOpen
      onClose={onClose}
      act={async () => {
        await api.scaleApp(app.name, { count: Number(count) });
        await again();
      }}
    >
      {(faultOf) => (
        <>
          <Field
            label="Instances"
            type="number"
            min={0}
            value={count}
            onChange={(event) => setCount(event.target.value)}
            fault={faultOf("count")}
            required
          />
          {Number(count) < app.instances.length && (
            <p className="dim small">
              Those that end finish their requests first; what they have written to their disks is lost.
            </p>
          )}
        </>
      )}
    </FormSheet>
  );
}

function Share({ app, onClose }: FormProps) {
  const [share, setShare] = useState<ShareInfo | null>(null);
  const [isBusy, setIsBusy] = useState(false);
  const end = async (): Promise<void> => {
    setIsBusy(true);
    if (await attempt(`The end of sharing ${app.name}`, () => api.removeAppShare(app.name))) onClose();
    setIsBusy(false);
  };
  return (
    <FormSheet
      title={`Share ${app.name}`}
      verb={share === null ? "Make a link" : "Make a new link"}
      cli={`flotilla app share ${app.name}`}
      isOpen
      onClose={onClose}
      act={async () => {
        setShare(await api.createAppShare(app.name));
        return "stay";
      }}
    >
      <p className="dim">
        The link opens the app without a key, for everyone who has it. A new link ends an earlier one.
      </p>
      {typeof share?.url === "string" && (
        <div className="cli">
          <code>{share.url}</code>
          <CopyButton text={share.url} what="the link" />
        </div>
      )}
      <Button look="danger" isBusy={isBusy} onClick={() => void end()}>
        End sharing
      </Button>
    </FormSheet>
  );
}
