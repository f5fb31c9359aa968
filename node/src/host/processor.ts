/**
 * The properties of the host's processor that guests see. Pure.
 */

/** A kernel reads these once, at boot: a booted guest does not survive a change. */
const LINES = ["vendor_id", "cpu family", "model", "stepping", "microcode", "flags", "vmx flags"] as const;

/**
 * Identifies the processor that guests under KVM see: by the first processor in the text of /proc/cpuinfo,
 * and by the host kernel's release, which decides what KVM exposes. It changes with every update that adds or
 * removes a feature.
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
 * The rate of the time stamp counter in kHz, from the text of /proc/cpuinfo; null when its rate is not
 * constant. On such processors the kernel prints twice the rate as `bogomips`; `cpu MHz` is only the current
 * clock.
 */
export function tscKhzIn(cpuinfo: string): number | null {
  if (!/^flags\s*:.*\bconstant_tsc\b/m.test(cpuinfo)) return null;
  const bogomips = Number(/^bogomips\s*:\s*([\d.]+)/m.exec(cpuinfo)?.[1]);
  return bogomips > 0 ? Math.round((bogomips * 1000) / 2) : null;
}
