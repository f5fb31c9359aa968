/**
 * What a room gives to the server: a room with handlers or loops has a `family.ts`, and its record is in the
 * list of families.ts, in the order of the rooms.
 */
import { PROGRAMS } from "./rooms.ts";
import { type Finding, lineAt, type Tree } from "./tree.ts";

const LIST = "server/src/families.ts";
const ROOM = /^server\/src\/([a-z-]+)\//;
const GIVES = /^server\/src\/[a-z-]+\/(?:.+\/)?(?:routes|[a-z-]+-loop)\.ts$/;

/**
 * Rooms whose handlers or loops are in no family, and families that are not in the list or out of its order.
 */
export function checkFamilies(tree: Tree): Finding[] {
  return [...withoutFamily(tree), ...notInOrder(tree)];
}

function withoutFamily(tree: Tree): Finding[] {
  const findings: Finding[] = [];
  for (const path of tree.sources.keys()) {
    const room = ROOM.exec(path)?.[1];
    if (room === undefined || !GIVES.test(path) || tree.sources.has(`server/src/${room}/family.ts`)) continue;
    findings.push(finding(path, 1, `${room}/ has no family.ts: name there what the room gives to the server`));
  }
  return findings;
}

function notInOrder(tree: Tree): Finding[] {
  const list = tree.sources.get(LIST);
  if (list === undefined) return [];
  const findings: Finding[] = [];
  let last = { room: "", at: 0 };
  for (const room of Object.keys(PROGRAMS["server"]?.rooms ?? {})) {
    const source = tree.sources.get(`server/src/${room}/family.ts`);
    if (source === undefined) continue;
    const name = source.exports.find((each) => each.name.endsWith("Family"))?.name ?? "";
    const at = list.code.search(new RegExp(`\\b${name}\\(`));
    if (name === "") findings.push(finding(source.path, 1, "it exports no function whose name ends with Family"));
    else if (at === -1) findings.push(finding(source.path, 1, `${name} is not in the list of ${LIST}: add its line`));
    else if (at < last.at)
      findings.push(
        finding(LIST, lineAt(list.code, at), `${name} goes after ${last.room}/: the list has the rooms' order`),
      );
    else last = { room, at };
  }
  return findings;
}

const finding = (path: string, line: number, message: string): Finding => ({ path, line, rule: "family", message });
