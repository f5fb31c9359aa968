/**
 * The rate of the host's time stamp counter, which emulated processors pass on to their guests. Pure.
 */

/**
 * From the text of /proc/cpuinfo, in kHz; null when the counter does not run at one rate. The kernel prints twice the
 * rate as `bogomips` on such processors; `cpu MHz` is what the processor happens to do now.
 */
export function tscKhzIn(cpuinfo: string): number | null {
  if (!/^flags\s*:.*\bconstant_tsc\b/m.test(cpuinfo)) return null;
  const bogomips = Number(/^bogomips\s*:\s*([\d.]+)/m.exec(cpuinfo)?.[1]);
  return bogomips > 0 ? Math.round((bogomips * 1000) / 2) : null;
}
