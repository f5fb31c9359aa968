/**
 * Names for machines that were created without one: readable, and good as the label of a host name. Pure.
 */

const QUALITIES =
  "able amber azure bold brave breezy bright brisk calm clear coral crisp deep early eager fair fast fond free fresh gentle " +
  "glad golden grand green happy hardy honest humble jolly keen kind lively loyal lucky lunar mellow merry mighty misty neat " +
  "noble northern open patient polar proud quick quiet ready rosy royal silent silver smooth solar steady stout sunny swift " +
  "tidy vivid warm western wise";
const THINGS =
  "anchor beacon bay boat bow breeze bridge brig buoy canal canoe cape captain cliff coast compass coral cove crew current " +
  "cutter deck delta dock dolphin dory ferry fjord gale galley gull harbor heron horizon hull island jetty kayak keel kelp " +
  "lagoon lantern lighthouse mast mist oar ocean otter pearl pelican pier pilot port quay raft reef rigging river rudder sail " +
  "sailor schooner seal shell shore sloop";

const choose = (choices: string, byte: number): string => {
  const list = choices.split(" ");
  return list[byte % list.length] ?? "machine";
};

/** Makes a name such as `calm-harbor-3f2a9c`: readable, and unique by its digits. */
export function generatedName(randomBytes: (size: number) => Buffer): string {
  const [first = 0, second = 0, ...rest] = randomBytes(5);
  return `${choose(QUALITIES, first)}-${choose(THINGS, second)}-${Buffer.from(rest).toString("hex")}`;
}
