/**
 * The forms of one webhook: what it receives, a new secret, a replay, and what was sent.
 */
import type { WebhookDelivery, WebhookInfo } from "@flotilla/sdk";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { shellWord } from "../format.ts";
import { Sheet } from "../ui/dialog.tsx";
import { FormSheet } from "../ui/form.tsx";
import { CopyButton, Facts, Field, Time } from "../ui/parts.tsx";

const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["webhooks"] });

interface FormProps {
  readonly webhook: WebhookInfo;
  readonly onClose: () => void;
}

/** Changes where its events are sent, and which. */
export function ChangeWebhook({ webhook, onClose }: FormProps) {
  const [url, setUrl] = useState(webhook.url);
  const [types, setTypes] = useState((webhook.types ?? []).join(", "));
  const [description, setDescription] = useState(webhook.description ?? "");
  const named = types.split(/[\s,]+/).filter(Boolean);
  const options = named.length === 0 ? "--all-types" : named.map((type) => `--type ${shellWord(type)}`).join(" ");
  return (
    <FormSheet
      title="Change the webhook"
      verb="Change"
      cli={`flotilla webhook set ${webhook.id} --address ${shellWord(url)} ${options}`}
      isOpen
      onClose={onClose}
      act={async () => {
        const request = { url, types: named.length === 0 ? null : named, description: description.trim() || null };
        await api.updateWebhook(webhook.id, request);
        await again();
      }}
    >
      {(faultOf) => (
        <>
          <Field
            label="Receiver"
            type="url"
            value={url}
            onChange={(event) => setUrl(event.target.value)}
            fault={faultOf("url")}
            required
          />
          <Field
            label="Types"
            placeholder="all"
            hint="such as machine.failed, app.*"
            value={types}
            onChange={(event) => setTypes(event.target.value)}
            fault={faultOf("types")}
          />
          <Field
            label="What it is for"
            value={description}
            onChange={(event) => setDescription(event.target.value)}
            fault={faultOf("description")}
          />
        </>
      )}
    </FormSheet>
  );
}

/** Makes a new secret, which is shown once. */
export function RotateSecret({ webhook, onClose }: FormProps) {
  const [hours, setHours] = useState("24");
  const [secret, setSecret] = useState<string | null>(null);
  if (secret !== null)
    return (
      <Sheet title="The new secret" isOpen onClose={onClose}>
        <div className="body">
          <p>Copy it now: it is shown once. Deliveries have both signatures for {hours || 24} hours.</p>
          <div className="cli">
            <code>{secret}</code>
            <CopyButton text={secret} what="the secret" />
          </div>
        </div>
      </Sheet>
    );
  return (
    <FormSheet
      title="Make a new secret"
      verb="Make it"
      cli={`flotilla webhook rotate ${webhook.id} --keep-hours ${hours || 24}`}
      isOpen
      onClose={onClose}
      act={async () => {
        const body = hours.trim() === "" ? {} : { keepPreviousHours: Number(hours) };
        setSecret((await api.rotateWebhookSecret(webhook.id, body)).secret);
        await again();
        return "stay";
      }}
    >
      {(faultOf) => (
        <>
          <Field
            label="Hours that the previous one also signs"
            type="number"
            min={0}
            value={hours}
            onChange={(event) => setHours(event.target.value)}
            fault={faultOf("keepPreviousHours")}
          />
          {Number(hours) === 0 && <p className="note">Receivers that know only the previous one refuse from now on.</p>}
        </>
      )}
    </FormSheet>
  );
}

/** Sends again what followed an event. */
export function ReplayEvents({ webhook, onClose }: FormProps) {
  const [cursor, setCursor] = useState("");
  return (
    <FormSheet
      title="Send events again"
      verb="Send again"
      cli={`flotilla webhook replay ${webhook.id}${cursor.trim() && ` --from ${shellWord(cursor.trim())}`}`}
      isOpen
      onClose={onClose}
      act={async () => {
        await api.replayWebhook(webhook.id, cursor.trim() === "" ? {} : { cursor: cursor.trim() });
        await again();
      }}
    >
      {(faultOf) => (
        <>
          <p className="dim">
            All events after the one with this cursor are sent again, with the same ids, so that a receiver recognises
            them.
          </p>
          <Field
            label="Cursor"
            value={cursor}
            placeholder="the oldest that is kept, of 30 days"
            onChange={(event) => setCursor(event.target.value)}
            fault={faultOf("cursor")}
          />
        </>
      )}
    </FormSheet>
  );
}

/** What was sent, byte for byte, and how it was answered. */
export function DeliveryDetails({ delivery, onClose }: DeliveryProps) {
  return (
    <Sheet title={delivery.type} isOpen onClose={onClose} isSide>
      <div className="body">
        <Facts
          rows={[
            ["State", delivery.status],
            ["Tries", delivery.attempts],
            ["Last try", delivery.lastAttemptAt && <Time key="l" at={delivery.lastAttemptAt} isWhole />],
            ["Next try", delivery.nextAttemptAt && <Time key="n" at={delivery.nextAttemptAt} isWhole />],
            ["Answer", delivery.lastStatus],
            ["Failure", delivery.lastError],
            ["Id", <code key="i">{delivery.id}</code>],
          ]}
        />
        <p className="dim small">
          What is sent <CopyButton text={delivery.body} what="the body" />
        </p>
        <pre className="sent" tabIndex={0}>
          {delivery.body}
        </pre>
      </div>
    </Sheet>
  );
}

interface DeliveryProps {
  readonly delivery: WebhookDelivery;
  readonly onClose: () => void;
}
