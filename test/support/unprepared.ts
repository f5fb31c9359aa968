/**
 * Loaded before a test's node agent: it prepares VMs only of the sizes that its machines have.
 *
 * An agent prepares five VMs of the default size when it starts, which under emulation costs more than most
 * tests, and again after each restart.
 */
import { changeSource } from "./changed-source.ts";

const FILE = "node/src/machines/prepared/prepared-vms.ts";

changeSource([
  { file: FILE, from: "const FIRST_IMAGE_MINIMUM = 3;", to: "const FIRST_IMAGE_MINIMUM = 0;" },
  { file: FILE, from: "const WITHOUT_DISK_MINIMUM = 2;", to: "const WITHOUT_DISK_MINIMUM = 0;" },
]);
