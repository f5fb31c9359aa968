/**
 * The tenant's API keys. A new one is shown once.
 */
import type { ApiKeyInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { type SyntheticEvent, useMemo, useState } from "react";
import { api, queries } from "../api.ts";
import { keysQuery } from "../data.ts";
import { plain } from "../format.ts";
import { useSession } from "../session.tsx";
import { Confirm, Sheet } from "../ui/dialog.tsx";
import { Badge, Button, Cli, CopyButton, Empty, ErrorNote, Field, Loading, PageHead, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const SCOPES = [
  ...["machine:read", "machine:create", "machine:delete", "machine:exec", "machine:files", "app:read", "app:write"],
  ...["usage:read", "billing:read", "keys:write", "pool:write", "webhook:write", "audit:read", "admin"],
];
const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["keys"] });

export function KeysPage() {
  const session = useSession();
  const keys = useQuery(keysQuery);
  const [isMaking, setIsMaking] = useState(false);
  const [revoked, setRevoked] = useState<ApiKeyInfo | null>(null);
  const columns = useMemo<readonly Column<ApiKeyInfo>[]>(
    () => [
      {
        name: "Key",
        show: ({ id, description }) => (
          <>
            {description === null ? <span className="dim">without a description</span> : plain(description)}{" "}
            {id === session.subject && <Badge tone="good">this session</Badge>}
          </>
        ),
        by: ({ description }) => description ?? "",
      },
      {
        name: "May",
        show: ({ scopes }) => <span title={scopes.join(" ")}>{scopes.join(" ")}</span>,
        by: ({ scopes }) => scopes.join(" "),
      },
      {
        name: "Last used",
        show: ({ lastUsedAt }) => <Time at={lastUsedAt} />,
        by: ({ lastUsedAt }) => lastUsedAt ?? "",
      },
      {
        name: "Expires",
        show: ({ expiresAt }) => <Time at={expiresAt} />,
        by: ({ expiresAt }) => expiresAt ?? "",
        isWide: true,
      },
      { name: "Id", show: ({ id }) => <code title={id}>{id.slice(0, 12)}</code>, isWide: true },
      {
        name: "Actions",
        show: (key) => (
          <Button
            look="quiet"
            icon="close"
            aria-label={`Revoke ${key.description ?? key.id}`}
            onClick={() => setRevoked(key)}
          />
        ),
      },
    ],
    [session.subject],
  );
  return (
    <>
      <title>Keys · Flotilla</title>
      <PageHead title="Keys">
        <Button look="main" icon="plus" onClick={() => setIsMaking(true)}>
          Create key
        </Button>
      </PageHead>
      <ErrorNote error={keys.error} retry={() => void keys.refetch()} />
      {keys.isPending && <Loading what="keys" />}
      {keys.data !== undefined && (
        <DataTable
          label="Keys"
          rows={keys.data}
          columns={columns}
          idOf={({ id }) => id}
          empty={<Empty title="No keys" cli="flotilla key create" />}
        />
      )}
      <Make isOpen={isMaking} onClose={() => setIsMaking(false)} />
      <Confirm
        title={`Revoke ${revoked?.description ?? revoked?.id ?? ""}?`}
        verb="Revoke"
        isOpen={revoked !== null}
        onClose={() => setRevoked(null)}
        act={async () => {
          await api.deleteApiKey(revoked?.id ?? "");
          await again();
        }}
      >
        <p>
          Programs that use it are refused from now on, and what they have open ends
          {revoked?.id === session.subject && ", this session too"}. This cannot be undone.
        </p>
        <Cli line={`flotilla key rm ${revoked?.id ?? ""}`} />
      </Confirm>
    </>
  );
}

function Make({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  const session = useSession();
  const [description, setDescription] = useState("");
  const [days, setDays] = useState("");
  const [scopes, setScopes] = useState<readonly string[]>(["machine:read"]);
  const [made, setMade] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const close = (): void => {
    setMade(null);
    onClose();
  };
  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setError(null);
    try {
      const expiry = days === "" ? {} : { expiresInDays: Number(days) };
      const { key } = await api.createApiKey({
        scopes: [...scopes],
        ...(description === "" ? {} : { description }),
        ...expiry,
      });
      setMade(key);
      await again();
    } catch (failed) {
      setError(failed);
    }
  };
  return (
    <Sheet title="Create a key" isOpen={isOpen} onClose={close}>
      {made !== null ? (
        <div className="body">
          <p>Copy the key now: it is shown once.</p>
          <div className="cli">
            <code>{made}</code>
            <CopyButton text={made} what="the key" />
          </div>
          <footer>
            <Button look="main" onClick={close}>
              Done
            </Button>
          </footer>
        </div>
      ) : (
        <form className="body" onSubmit={(event) => void submit(event)}>
          <Field label="What it is for" value={description} onChange={(event) => setDescription(event.target.value)} />
          <fieldset>
            <legend>What it may do</legend>
            <div className="choices">
              {SCOPES.filter((scope) => session.can(scope)).map((scope) => (
                <label key={scope} className="check">
                  <input
                    type="checkbox"
                    checked={scopes.includes(scope)}
                    onChange={(event) =>
                      setScopes(event.target.checked ? [...scopes, scope] : scopes.filter((each) => each !== scope))
                    }
                  />
                  {scope}
                </label>
              ))}
            </div>
          </fieldset>
          <Field
            label="Expires in days"
            type="number"
            min={1}
            placeholder="never"
            value={days}
            onChange={(event) => setDays(event.target.value)}
          />
          <ErrorNote error={error} />
          <Cli line={`flotilla key create --scope ${scopes.join(" --scope ")}`} />
          <footer>
            <Button onClick={close}>Close</Button>
            <Button look="main" type="submit" disabled={scopes.length === 0}>
              Create
            </Button>
          </footer>
        </form>
      )}
    </Sheet>
  );
}
