/**
 * Messages of the export of a machine: its disk becomes a package in the registry of the fleet.
 *
 *     POST /v1/machines/{id}/export   ExportRequest → ExportLine, one JSON value a line; the last is `done` or `failed`
 *
 * The node reads the disk of a machine at rest and pushes it to its server, under `/v2/`. A start of the
 * machine is not held up: it ends the export, with `started`.
 *
 * Always: a repeated export of an unchanged disk with the same request gives the same digest, and sends no
 * layer that the registry has.
 */
import { ENV_BYTES_MAX, PORTS_PER_MACHINE_MAX } from "../limits.ts";
import { absolutePath, argv, imageReference, PATH_CHARACTERS_MAX } from "./machines.ts";
import {
  clipped,
  clippedList,
  count,
  environment,
  list,
  matching,
  type Message,
  nullable,
  oneOf,
  oneOfOr,
  text,
  Type,
  whole,
} from "./vocabulary.ts";

const BYTES_MAX = Number.MAX_SAFE_INTEGER;
const LAYERS_MAX = 512;
const LABELS_BYTES_MAX = 64 * 1024;
const MESSAGE_CHARACTERS_MAX = 1_000;

/** Why a machine is not exported; null: a repetition may succeed. */
export const EXPORT_FAULTS = [
  "not_found",
  /** It is not stopped, or is about to leave the node. */
  "not_stopped",
  /** Its memory is saved, and fits only the disk as it is. */
  "suspended",
  /** It was started while its disk was read. */
  "started",
  /** The node's disk is full. */
  "no_space",
  /** The registry refuses: its quota, or the lease is over. */
  "refused",
  /** The disk cannot be read, or is too large for a package. */
  "unreadable",
] as const;
export type ExportFault = (typeof EXPORT_FAULTS)[number];

/** What replaces the configuration of the machine's image; null: the image's. */
export const PackageConfiguration = Type.Object({
  entrypoint: nullable(argv()),
  command: nullable(argv()),
  /** Variables besides those of the image; null: none. */
  env: nullable(environment(ENV_BYTES_MAX)),
  workdir: nullable(absolutePath()),
  user: nullable(text(PATH_CHARACTERS_MAX)),
});
export type PackageConfiguration = Message<typeof PackageConfiguration>;

/** The body of `POST /v1/machines/{id}/export`. */
export const ExportRequest = Type.Object({
  operationId: text(128),
  /** `tenants/…` or `library/…`, of the registry of the fleet. */
  repository: matching(/^[a-z0-9]+(?:[._/-]+[a-z0-9]+)*$/),
  /** null: it is known by its digest alone. */
  tag: nullable(matching(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/)),
  /** What the machine was made from; null: not known any more. */
  image: nullable(Type.Object({ reference: imageReference(), digest: nullable(matching(/^sha256:[0-9a-f]{64}$/)) })),
  configuration: PackageConfiguration,
  ports: list(whole(1, 65_535), PORTS_PER_MACHINE_MAX),
  labels: environment(LABELS_BYTES_MAX),
  /** null: the node's own. */
  architecture: nullable(oneOf(["amd64", "arm64"])),
});
export type ExportRequest = Message<typeof ExportRequest>;

/** A line of the answer to `POST /v1/machines/{id}/export`. */
export const ExportLine = Type.Union([
  Type.Object({
    kind: Type.Literal("progress"),
    message: clipped(MESSAGE_CHARACTERS_MAX),
    /** Bytes of the disk that are used, and how many of them are sent. */
    doneBytes: count(BYTES_MAX),
    totalBytes: count(BYTES_MAX),
  }),
  Type.Object({
    kind: Type.Literal("done"),
    /** The digest of the manifest. */
    digest: matching(/^sha256:[0-9a-f]{64}$/),
    /** The sum of the layers, as they are stored. */
    sizeBytes: count(BYTES_MAX),
    sentBytes: count(BYTES_MAX),
    layers: count(LAYERS_MAX),
    sentLayers: count(LAYERS_MAX),
    /** Such as `linux/amd64`. */
    platforms: clippedList(clipped(64), 8),
  }),
  Type.Object({
    kind: Type.Literal("failed"),
    message: clipped(MESSAGE_CHARACTERS_MAX),
    code: oneOfOr(EXPORT_FAULTS, null),
  }),
]);
export type ExportLine = Message<typeof ExportLine>;
