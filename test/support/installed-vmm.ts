/**
 * Installs other programs instead of the host's QEMU: copies of it, each one byte longer than the one before.
 * With FLOTILLA_TEST_QEMU, a directory with the unpacked packages of another QEMU, copies of that one, with
 * its modules and firmware.
 *
 * Only in a mount namespace of the test's own (namespaces.ts): other programs of the host see the host's
 * QEMU.
 */
import { execFileSync } from "node:child_process";
import { appendFileSync, copyFileSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const run = (program: string, ...argv: readonly string[]): string => execFileSync(program, argv, { encoding: "utf8" });
const other = process.env["FLOTILLA_TEST_QEMU"];
const OTHER_DIRECTORIES = ["/usr/lib/x86_64-linux-gnu/qemu", "/usr/share/qemu"] as const;

export class InstalledVmms implements Disposable {
  readonly #directory = mkdtempSync(join(tmpdir(), "flotilla-qemu-"));
  readonly #program = realpathSync(run("sh", "-c", "command -v qemu-system-x86_64").trim());
  #count = 0;

  /**
   * What is started from now on finds another program. Running ones keep theirs, as after an upgrade of a
   * package.
   */
  installNext(): void {
    this.#count += 1;
    const copy = join(this.#directory, String(this.#count));
    copyFileSync(other === undefined ? this.#program : join(other, "usr/bin/qemu-system-x86_64"), copy);
    appendFileSync(copy, " ".repeat(this.#count));
    run("mount", "--bind", copy, this.#program);
    if (other === undefined || this.#count > 1) return;
    for (const directory of OTHER_DIRECTORIES) run("mount", "--bind", join(other, directory), directory);
  }

  [Symbol.dispose](): void {
    for (; this.#count > 0; this.#count -= 1) run("umount", "--lazy", this.#program);
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
