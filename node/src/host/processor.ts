/**
 * What guests see of the host's processor. Pure.
 */

/** A kernel that boots asks its processor for these once, and never again: it does not survive another. */
const LINES = ["vendor_id", "cpu family", "model", "stepping", "microcode", "flags", "vmx flags"] as const;

/**
 * Names the processor that guests under KVM see: by the first of the host's processors in the text of /proc/cpuinfo, and
 * by the host kernel's release, which decides what KVM passes on. It changes with every update that shows or hides a feature.
 */
export function processorIdentity(cpuinfo: string, kernelRelease: string): string {
  const [first = ""] = cpuinfo.split(/\n\s*\n/);
  const lines = first.split("\n").map((line) => {
    const at = line.indexOf(":");
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()] as const;
  });
  const values = LINES.map((name) => lines.find(([found]) => found === name)?.[1] ?? "");
  return JSON.stringify([...values, kernelRelease]);
}

/**
 * The rate of the time stamp counter in kHz, by the text of /proc/cpuinfo; null when the counter does not run at one rate.
 * The kernel prints twice the rate as `bogomips` on such processors; `cpu MHz` is what the processor happens to do now.
 */
export function tscKhzIn(cpuinfo: string): number | null {
  if (!/^flags\s*:.*\bconstant_tsc\b/m.test(cpuinfo)) return null;
  const bogomips = Number(/^bogomips\s*:\s*([\d.]+)/m.exec(cpuinfo)?.[1]);
  return bogomips > 0 ? Math.round((bogomips * 1000) / 2) : null;
}
