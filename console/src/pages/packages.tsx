/**
 * Packages: disks of machines in the registry, from which machines start on any node.
 */
import type { PackageInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, queries } from "../api.ts";
import { packagesQuery, retentionQuery } from "../data.ts";
import { renderBytes } from "../format.ts";
import { putOperation } from "../live.ts";
import { useSession } from "../session.tsx";
import { ActionMenu, attempt, type MenuEntry, messages } from "../ui/dialog.tsx";
import { FormSheet, numberOrNull } from "../ui/form.tsx";
import { Button, Cli, CopyButton, Empty, ErrorNote, Field, Loading, PageHead, Select, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["packages"] });

/** `web` of `tenants/ten-…/web:1`: what people write for a package of theirs. */
const nameOf = ({ reference }: PackageInfo): string =>
  reference.replace(/^tenants\/[^/]+\//, "").replace(/@.*$|:[^:/]*$/, "");

const isOwn = ({ reference }: PackageInfo, tenantId: string): boolean => reference.startsWith(`tenants/${tenantId}/`);

export function PackagesPage() {
  const session = useSession();
  const navigate = useNavigate();
  const packages = useQuery(packagesQuery);
  const retention = useQuery(retentionQuery);
  const [removed, setRemoved] = useState<PackageInfo | null>(null);
  const [kept, setKept] = useState<string | null>(null);
  const [isRegistering, setIsRegistering] = useState(false);
  const keeps = useMemo(
    () => new Map((retention.data ?? []).map(({ name, keepLast }) => [name, keepLast])),
    [retention.data],
  );
  const columns = useMemo<readonly Column<PackageInfo>[]>(
    () => [
      {
        name: "Package",
        show: (each) => (
          <>
            <strong>{nameOf(each)}</strong> {!isOwn(each, session.tenantId) && <span className="dim">library</span>}
          </>
        ),
        by: nameOf,
      },
      { name: "Tags", show: ({ tags }) => tags.join(", "), by: ({ tags }) => tags[0] ?? "" },
      {
        name: "Size",
        show: ({ sizeBytes }) => renderBytes(sizeBytes),
        by: ({ sizeBytes }) => sizeBytes,
        isNumber: true,
      },
      {
        name: "Made of",
        show: ({ image, machineId }) => (
          <>
            {image ?? "not a machine's disk"}{" "}
            {machineId !== null && (
              <Link to="/machines/$id/{-$tab}" params={{ id: machineId, tab: undefined }}>
                by its machine
              </Link>
            )}
          </>
        ),
        isWide: true,
      },
      {
        name: "Digest",
        show: ({ digest }) => (
          <>
            <code>{digest.slice(0, 19)}</code> <CopyButton text={digest} what="the digest" />
          </>
        ),
        isWide: true,
      },
      {
        name: "Changed",
        show: ({ updatedAt }) => <Time at={updatedAt} />,
        by: ({ updatedAt }) => updatedAt,
        isWide: true,
      },
      {
        name: "Actions",
        show: (each) => {
          const offered: readonly (MenuEntry & { readonly isOffered: boolean })[] = [
            {
              name: "Keep only the newest tags",
              isOffered: session.can("machine:delete") && isOwn(each, session.tenantId),
              run: () => setKept(nameOf(each)),
            },
            {
              name: "Delete",
              isDanger: true,
              isOffered: session.can("machine:delete") && (isOwn(each, session.tenantId) || session.can("admin")),
              run: () => setRemoved(each),
            },
          ];
          return (
            <span className="row-actions">
              {session.can("machine:create") && each.diskGb !== null && (
                <Button
                  onClick={() => void navigate({ to: "/machines/create", search: { package: each.reference } })}
                  aria-label={`Start a machine from ${nameOf(each)}`}
                >
                  Start
                </Button>
              )}
              <ActionMenu label={`More for ${nameOf(each)}`} entries={offered.filter(({ isOffered }) => isOffered)} />
            </span>
          );
        },
      },
    ],
    [session.tenantId, session.scopes],
  );
  const collect = async (): Promise<void> => {
    setIsRegistering(true);
    const isBegun = await attempt("The collection", async () => putOperation(await api.collectRegistry()));
    setIsRegistering(false);
    if (isBegun) messages.add({ title: "The collection has begun", description: "It frees what no package needs." });
  };
  return (
    <>
      <title>Packages · Flotilla</title>
      <PageHead title="Packages">
        {session.can("admin") && (
          <Button isBusy={isRegistering} onClick={() => void collect()}>
            Free unused space
          </Button>
        )}
      </PageHead>
      <ErrorNote error={packages.error ?? retention.error} retry={() => void packages.refetch()} />
      {packages.isPending && <Loading what="packages" />}
      {packages.data !== undefined && (
        <>
          <DataTable
            label="Packages"
            rows={packages.data}
            columns={columns}
            idOf={({ reference, digest }) => `${reference} ${digest}`}
            sortedBy="Package"
            empty={
              <Empty title="No package yet" cli="flotilla machine export web --tag 1">
                A package is the disk of a stopped machine, from which others start on any node. Stop a machine, and
                choose “Export as a package” in its menu.
              </Empty>
            }
          />
          {keeps.size > 0 && (
            <p className="dim">
              Kept: {[...keeps].map(([name, keepLast]) => `${keepLast ?? "all"} tags of ${name}`).join(", ")}
            </p>
          )}
          {packages.data.length > 0 && <Cli line="flotilla package ls" />}
        </>
      )}
      {removed !== null && <Remove item={removed} onClose={() => setRemoved(null)} />}
      {kept !== null && <Keep name={kept} before={keeps.get(kept) ?? null} onClose={() => setKept(null)} />}
    </>
  );
}

/** Deletes a tag, or the package with all of them. */
function Remove({ item, onClose }: { readonly item: PackageInfo; readonly onClose: () => void }) {
  const name = nameOf(item);
  const base = item.reference.replace(/@.*$|:[^:/]*$/, "");
  const [tag, setTag] = useState(item.tags.length === 1 ? "" : (item.tags[0] ?? ""));
  const reference = tag === "" ? `${base}@${item.digest}` : `${base}:${tag}`;
  return (
    <FormSheet
      title={`Delete ${name}`}
      verb="Delete"
      isDanger
      cli={`flotilla package rm ${tag === "" ? `${name}@${item.digest}` : `${name}:${tag}`}`}
      isOpen
      onClose={onClose}
      act={async () => {
        await api.deletePackage({ query: { reference } });
        await again();
      }}
    >
      <Select
        label="What"
        value={tag}
        options={[
          ...item.tags.map((each) => [each, `the tag ${each}`] as const),
          [
            "",
            item.tags.length === 1 ? `the package, with its tag ${item.tags[0]}` : "the package, with all of its tags",
          ],
        ]}
        onChange={setTag}
      />
      <p className="note bad">
        {tag === "" ? "The files of this disk are lost" : "Without another tag the files of this disk are lost"}, except
        on machines that were started from it. Layers that other packages share stay.
      </p>
    </FormSheet>
  );
}

/** Sets how many tags are kept. */
function Keep({
  name,
  before,
  onClose,
}: {
  readonly name: string;
  readonly before: number | null;
  readonly onClose: () => void;
}) {
  const [count, setCount] = useState(before === null ? "" : String(before));
  return (
    <FormSheet
      title={`Keep the newest tags of ${name}`}
      verb="Keep"
      cli={`flotilla package keep ${name} ${count === "" ? "--all" : `--last ${count}`}`}
      isOpen
      onClose={onClose}
      act={async () => {
        await api.setPackageRetention({ name, keepLast: numberOrNull(count) });
        await again();
      }}
    >
      {(faultOf) => (
        <Field
          label="How many"
          type="number"
          min={1}
          placeholder="all"
          value={count}
          onChange={(event) => setCount(event.target.value)}
          fault={faultOf("keepLast")}
          hint="older ones are deleted when a newer one is set, with the disks that only they have"
        />
      )}
    </FormSheet>
  );
}
