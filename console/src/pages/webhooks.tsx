/**
 * Webhooks: where events are sent, and how the deliveries do.
 */
import { usePathPart } from "../route.ts";
import type { WebhookDelivery, WebhookInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type SyntheticEvent, useMemo, useState } from "react";
import { api, queries } from "../api.ts";
import { deliveriesQuery, webhooksQuery } from "../data.ts";
import { ActionMenu, attempt, Confirm, Sheet } from "../ui/dialog.tsx";
import {
  Badge,
  Button,
  Cli,
  CopyButton,
  Empty,
  ErrorNote,
  Facts,
  Field,
  Loading,
  PageHead,
  Panel,
  Time,
} from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { ChangeWebhook, DeliveryDetails, ReplayEvents, RotateSecret } from "./webhook-forms.tsx";

const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["webhooks"] });

const COLUMNS: readonly Column<WebhookInfo>[] = [
  {
    name: "Receiver",
    show: ({ id, url }) => (
      <Link to="/webhooks/$id" params={{ id }}>
        {url}
      </Link>
    ),
    by: ({ url }) => url,
  },
  { name: "State", show: (webhook) => <State webhook={webhook} />, by: ({ enabled }) => (enabled ? 1 : 0) },
  { name: "Types", show: ({ types }) => types?.join(", ") ?? "all", isWide: true },
  { name: "Waiting", show: ({ pending }) => pending, by: ({ pending }) => pending, isNumber: true },
];

function State({ webhook }: { readonly webhook: WebhookInfo }) {
  if (!webhook.enabled) return <Badge tone="bad">disabled</Badge>;
  return webhook.failingSince === null ? <Badge tone="good">enabled</Badge> : <Badge tone="warn">failing</Badge>;
}

export function WebhooksPage() {
  const webhooks = useQuery(webhooksQuery);
  const [isMaking, setIsMaking] = useState(false);
  return (
    <>
      <title>Webhooks · Flotilla</title>
      <PageHead title="Webhooks">
        <Button look="main" icon="plus" onClick={() => setIsMaking(true)}>
          Create webhook
        </Button>
      </PageHead>
      <ErrorNote error={webhooks.error} retry={() => void webhooks.refetch()} />
      {webhooks.isPending && <Loading what="webhooks" />}
      {webhooks.data !== undefined && (
        <DataTable
          label="Webhooks"
          rows={webhooks.data}
          columns={COLUMNS}
          idOf={({ id }) => id}
          empty={
            <Empty title="No webhooks yet" cli="flotilla webhook create https://example.com/hook">
              A webhook sends each event to a receiver of yours, signed, and again until it is taken.
            </Empty>
          }
        />
      )}
      <Make isOpen={isMaking} onClose={() => setIsMaking(false)} />
    </>
  );
}

function Make({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  const [url, setUrl] = useState("");
  const [types, setTypes] = useState("");
  const [secret, setSecret] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const close = (): void => {
    setSecret(null);
    onClose();
  };
  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setError(null);
    try {
      const named = types.split(/[\s,]+/).filter(Boolean);
      const made = await api.createWebhook({ url, ...(named.length === 0 ? {} : { types: named }) });
      setSecret(made.secret);
      await again();
    } catch (failed) {
      setError(failed);
    }
  };
  return (
    <Sheet title="Create a webhook" isOpen={isOpen} onClose={close}>
      {secret !== null ? (
        <div className="body">
          <p>Copy the secret now: it is shown once, and signs every delivery.</p>
          <div className="cli">
            <code>{secret}</code>
            <CopyButton text={secret} what="the secret" />
          </div>
        </div>
      ) : (
        <form className="body" onSubmit={(event) => void submit(event)}>
          <Field
            label="Receiver"
            type="url"
            placeholder="https://example.com/hook"
            value={url}
            onChange={(event) => setUrl(event.target.value)}
            required
          />
          <Field
            label="Types"
            placeholder="all"
            hint="such as machine.failed, app.*"
            value={types}
            onChange={(event) => setTypes(event.target.value)}
          />
          <ErrorNote error={error} />
          <Cli line={`flotilla webhook create ${url || "https://example.com/hook"}`} />
          <footer>
            <Button onClick={close}>Close</Button>
            <Button look="main" type="submit">
              Create
            </Button>
          </footer>
        </form>
      )}
    </Sheet>
  );
}

const TONES = { pending: "busy", delivered: "good", failed: "bad" } as const;

export function WebhookPage() {
  const id = usePathPart("id");
  const navigate = useNavigate();
  const webhooks = useQuery(webhooksQuery);
  const deliveries = useQuery(deliveriesQuery(id));
  const [isRemoving, setIsRemoving] = useState(false);
  const [shown, setShown] = useState<WebhookDelivery | null>(null);
  const [asking, setAsking] = useState<"change" | "rotate" | "replay" | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const webhook = webhooks.data?.find((each) => each.id === id);
  const columns = useMemo<readonly Column<WebhookDelivery>[]>(
    () => [
      {
        name: "Event",
        show: (delivery) => (
          <button type="button" className="link" onClick={() => setShown(delivery)}>
            <code>{delivery.type}</code>
          </button>
        ),
        by: ({ type }) => type,
      },
      { name: "State", show: ({ status }) => <Badge tone={TONES[status]}>{status}</Badge>, by: ({ status }) => status },
      { name: "Tries", show: ({ attempts }) => attempts, by: ({ attempts }) => attempts, isNumber: true },
      { name: "Answer", show: ({ lastStatus, lastError }) => lastError ?? lastStatus ?? "", isWide: true },
      { name: "Queued", show: ({ queuedAt }) => <Time at={queuedAt} />, by: ({ queuedAt }) => queuedAt },
      {
        name: "Actions",
        show: (delivery) => (
          <Button
            onClick={() =>
              void attempt("The delivery", async () => {
                await api.redeliverWebhook(id, delivery.id);
                await again();
              })
            }
          >
            Send again
          </Button>
        ),
      },
    ],
    [id],
  );
  if (webhook === undefined)
    return webhooks.isPending ? <Loading what="the webhook" /> : <Empty title="No such webhook">{id}</Empty>;
  const act = async (what: string, call: () => Promise<unknown>): Promise<void> => {
    setBusy(what);
    await attempt(what, async () => {
      await call();
      await again();
    });
    setBusy(null);
  };
  const close = (): void => setAsking(null);
  return (
    <>
      <title>Webhook · Flotilla</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/webhooks">All</Link> / {webhook.url}
      </nav>
      <PageHead title={webhook.url} badge={<State webhook={webhook} />}>
        <Button isBusy={busy === "The test"} onClick={() => void act("The test", () => api.testWebhook(id))}>
          Send a test
        </Button>
        <Button
          isBusy={busy === "The change"}
          onClick={() => void act("The change", () => api.updateWebhook(id, { enabled: !webhook.enabled }))}
        >
          {webhook.enabled ? "Disable" : "Enable"}
        </Button>
        <ActionMenu
          label="More for the webhook"
          entries={[
            { name: "Change", run: () => setAsking("change") },
            { name: "Make a new secret", run: () => setAsking("rotate") },
            { name: "Send events again", run: () => setAsking("replay") },
            { name: "Delete", isDanger: true, run: () => setIsRemoving(true) },
          ]}
        />
      </PageHead>
      {webhook.disabledReason !== null && <p className="note bad">{webhook.disabledReason}</p>}
      <Panel title="Deliveries">
        <Facts
          rows={[
            ["Types", webhook.types?.join(", ") ?? "all"],
            ["Failing since", webhook.failingSince && <Time key="f" at={webhook.failingSince} />],
          ]}
        />
        <DataTable
          label="Deliveries"
          rows={deliveries.data ?? []}
          columns={columns}
          idOf={(delivery) => delivery.id}
          empty={<p className="dim fine">Nothing was sent yet.</p>}
        />
        <Cli line={`flotilla webhook deliveries ${id}`} />
      </Panel>
      {asking === "change" && <ChangeWebhook webhook={webhook} onClose={close} />}
      {asking === "rotate" && <RotateSecret webhook={webhook} onClose={close} />}
      {asking === "replay" && <ReplayEvents webhook={webhook} onClose={close} />}
      {shown !== null && <DeliveryDetails delivery={shown} onClose={() => setShown(null)} />}
      <Confirm
        title={`Delete ${webhook.url}?`}
        verb="Delete"
        isOpen={isRemoving}
        onClose={() => setIsRemoving(false)}
        act={async () => {
          await api.deleteWebhook(id);
          await navigate({ to: "/webhooks" });
          await again();
        }}
      >
        <p>{webhook.pending} deliveries that wait are not sent, and its secret is lost.</p>
      </Confirm>
    </>
  );
}
