/**
 * The routes of the link that a node serves; the head of link.ts says what their bodies and answers are.
 * Pure.
 *
 * Always: the node serves each of these and no other (node/src/link/server.ts), and
 * node/test/link-resources.test.ts calls each with callers that misbehave.
 */
import { PART_PATHS } from "./moved-parts.ts";

export interface LinkRoute {
  readonly method: "DELETE" | "GET" | "POST" | "PUT";
  /** With parameters in braces, each one segment. */
  readonly path: string;
}

export const LINK_ROUTES = {
  exec: { method: "POST", path: "/v1/machines/{id}/exec" },
  dial: { method: "POST", path: "/v1/machines/{id}/dial/{port}" },
  /** Opens or resumes a connection that outlives this agent. */
  connect: { method: "POST", path: "/v1/machines/{id}/connections" },
  /** Begins, continues or watches a terminal that outlives its connection. */
  terminal: { method: "POST", path: "/v1/machines/{id}/terminals" },
  file: { method: "POST", path: "/v1/machines/{id}/files/{operation}" },
  putMachine: { method: "PUT", path: "/v1/machines/{id}" },
  /**
   * ReplaceRequest → ReplaceAnswer, when its VMM was replaced by one of the installed program, or why not.
   */
  replaceVmm: { method: "POST", path: "/v1/machines/{id}/vmm" },
  readLogs: { method: "GET", path: "/v1/machines/{id}/logs" },
  /**
   * The host goes down: SuspendAllRequest → SuspendedMachines, when all is done or at the deadline. From
   * node/src/suspend-main.ts.
   */
  suspendAll: { method: "POST", path: "/v1/suspended" },
  /** Lets the machines run again, because the host did not go down. */
  resumeAll: { method: "DELETE", path: "/v1/suspended" },
  /** RestartRequest → RestartAnswer; then the agent ends, and the installed program runs in its place. */
  restartAgent: { method: "POST", path: "/v1/agent" },
  listImages: { method: "GET", path: "/v1/images" },
  pullImage: { method: "PUT", path: "/v1/images" },
  importImage: { method: "POST", path: "/v1/images/import" },
  removeImage: { method: "DELETE", path: "/v1/images" },
  describeOutgoing: { method: "GET", path: "/v1/machines/{id}/outgoing" },
  releaseOutgoing: { method: "DELETE", path: "/v1/machines/{id}/outgoing" },
  sendFile: { method: "GET", path: `/v1/machines/{id}/outgoing/${PART_PATHS.file}` },
  sendDiskRound: { method: "GET", path: `/v1/machines/{id}/outgoing/${PART_PATHS.diskRound}` },
  sendMemoryRounds: { method: "GET", path: `/v1/machines/{id}/outgoing/${PART_PATHS.memoryRounds}` },
  /** Pauses the machine. */
  sendRest: { method: "POST", path: `/v1/machines/{id}/outgoing/${PART_PATHS.rest}` },
  beginIncoming: { method: "PUT", path: "/v1/machines/{id}/incoming/{move}" },
  receiveFile: { method: "POST", path: `/v1/machines/{id}/incoming/{move}/${PART_PATHS.file}` },
  receiveDiskRound: { method: "POST", path: `/v1/machines/{id}/incoming/{move}/${PART_PATHS.diskRound}` },
  receiveMemoryRounds: { method: "POST", path: `/v1/machines/{id}/incoming/{move}/${PART_PATHS.memoryRounds}` },
  receiveRest: { method: "POST", path: `/v1/machines/{id}/incoming/{move}/${PART_PATHS.rest}` },
  commitIncoming: { method: "POST", path: "/v1/machines/{id}/incoming/{move}/commit" },
  discardIncoming: { method: "DELETE", path: "/v1/machines/{id}/incoming/{move}" },
  readMemoryUse: { method: "GET", path: "/v1/machines/{id}/memory" },
  /** ExportRequest → ExportLine, one a line, as packages.ts says. */
  exportMachine: { method: "POST", path: "/v1/machines/{id}/export" },
  makePoint: { method: "PUT", path: "/v1/points/{point}" },
  releasePoint: { method: "DELETE", path: "/v1/points/{point}" },
  describePoint: { method: "GET", path: "/v1/points/{point}/outgoing" },
  sendPointFile: { method: "GET", path: `/v1/points/{point}/outgoing/${PART_PATHS.file}` },
  beginPoint: { method: "PUT", path: "/v1/points/{point}/incoming/{move}" },
  receivePointFile: { method: "POST", path: `/v1/points/{point}/incoming/{move}/${PART_PATHS.file}` },
  commitPoint: { method: "POST", path: "/v1/points/{point}/incoming/{move}/commit" },
} as const satisfies Readonly<Record<string, LinkRoute>>;

export type LinkRouteName = keyof typeof LINK_ROUTES;

/** A request's route with the values of its parameters; undefined: the node serves no such route. */
export interface FoundRoute {
  readonly name: LinkRouteName;
  readonly parameters: Readonly<Record<string, string>>;
}

const PATTERNS = Object.entries(LINK_ROUTES).map(([name, { method, path }]) => ({
  name: name as LinkRouteName,
  method: method as string,
  pattern: new RegExp(`^${path.replace(/\{([a-z]+)\}/g, "(?<$1>[^/]+)")}$`),
}));

/** `pathname`: without a query. */
export function findLinkRoute(method: string, pathname: string): FoundRoute | undefined {
  for (const route of PATTERNS) {
    if (route.method !== method) continue;
    const match = route.pattern.exec(pathname);
    if (match !== null) return { name: route.name, parameters: { ...match.groups } };
  }
  return undefined;
}
