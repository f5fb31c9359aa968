/**
 * The handlers of packages: export, list, delete, retention, and the check of what was pushed.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { PackageInfo } from "@flotilla/contract/packages";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import type { MachineServices } from "../machines/services.ts";
import { operationInfo } from "../operations/view.ts";
import type { Registry } from "../registry/registry.ts";
import { awaitExport, EXPORT_AWAITED_MS, requestExport } from "./export.ts";
import { packagesOf } from "./list.ts";
import { ownPackageOf, ownRepositoryOf, packageNotFound, packageOf, shortName } from "../registry/package-name.ts";
import { endRetention, listRetention, setRetention, writePackageEvent } from "./store.ts";

type Names =
  | "exportMachine"
  | "listPackages"
  | "deletePackage"
  | "listPackageRetention"
  | "setPackageRetention"
  | "registerPackage";

export function packageHandlers(
  services: Pick<MachineServices, "cache" | "context">,
  registry: Pick<Registry, "find" | "list" | "removeManifest" | "removeTag" | "requireAvailable">,
): HandlersOf<Names> {
  const { context } = services;
  return {
    async exportMachine(request) {
      const { caller, params, query, signal } = request;
      const { tag = null, name = null, includeEnv } = request.body ?? {};
      const operation = await requestExport(
        { ...services, registry },
        {
          ...{ operationId: request.newId("operation"), owner: caller, machineId: params.id, tag, name },
          includesEnv: includeEnv === true,
        },
      );
      if (query.detach === true) return { status: 202, body: operationInfo(operation) };
      const awaited = await awaitExport(services, operation, { maxMs: EXPORT_AWAITED_MS, signal });
      if (awaited.made === null) return { status: 202, body: operationInfo(awaited.operation) };
      return { status: 200, body: awaited.made };
    },
    async listPackages({ caller, query }) {
      const found = packagesOf(await registry.list({ tenantId: caller.tenantId, includesLibrary: true }));
      const keyOf = ({ reference, digest }: PackageInfo): string => `${reference} ${digest}`;
      return { status: 200, ...listPage(found, query, { path: "/v1/packages", keyOf }) };
    },
    async deletePackage({ caller, query: { reference } }) {
      const { repository, target, isDigest } = ownPackageOf(reference, caller, "reference");
      const found = await registry.find({ repository, target });
      const isGone =
        found !== null &&
        (await (isDigest ? registry.removeManifest(repository, target) : registry.removeTag(repository, target)));
      if (found === null || !isGone) throw packageNotFound(reference);
      const data = {
        reference: isDigest ? `${repository}@${target}` : `${repository}:${target}`,
        ...{ digest: found.digest, cause: "requested" as const },
      };
      await writePackageEvent(context, { tenantId: caller.tenantId, repository }, { type: "package.deleted", data });
      return { status: 204 };
    },
    async listPackageRetention({ caller }) {
      const all = await listRetention(context.db, caller.tenantId);
      return { status: 200, body: all.map(({ repository, keepLast }) => ({ name: shortName(repository), keepLast })) };
    },
    async setPackageRetention({ caller, body: { name, keepLast } }) {
      const repository = ownRepositoryOf(name, caller, "name");
      if (keepLast === null) await endRetention(context.db, repository);
      else await setRetention(context.db, { repository, tenantId: caller.tenantId, keepLast });
      return { status: 200, body: { name: shortName(repository), keepLast } };
    },
    async registerPackage({ caller, body: { repo, tag, digest, platforms } }) {
      const reference = `${repo}:${tag}`;
      const { repository, target } = packageOf(reference, caller.tenantId, "repo");
      const found = await registry.find({ repository, target });
      if (found === null) throw packageNotFound(reference);
      if (found.digest !== digest)
        throw new Refusal("conflict", `package ${reference} is ${found.digest}, and not ${digest}; push it again`, {
          field: "digest",
        });
      return { status: 200, body: { repo, tag, digest, count: platforms.length } };
    },
  };
}
