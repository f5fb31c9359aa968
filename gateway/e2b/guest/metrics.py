"""What the machine uses now: processors, memory, and its disk."""

import os
import time


def times():
    with open("/proc/stat", encoding="ascii") as file:
        values = [int(text) for text in file.readline().split()[1:9]]
    return sum(values), values[3] + values[4]


def sample(seconds=0.2):
    total, idle = times()
    time.sleep(seconds)
    later_total, later_idle = times()
    passed = max(1, later_total - total)
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}
    disk = os.statvfs("/")
    used = memory["MemTotal"] - memory.get("MemAvailable", memory["MemFree"])
    return {
        "ts": int(time.time()),
        "cpu_count": os.cpu_count(),
        "cpu_used_pct": round(100 * (1 - (later_idle - idle) / passed), 2),
        "mem_total": memory["MemTotal"],
        "mem_used": used,
        "mem_cache": memory.get("Cached", 0),
        "mem_total_mib": memory["MemTotal"] >> 20,
        "mem_used_mib": used >> 20,
        "disk_total": disk.f_blocks * disk.f_frsize,
        "disk_used": (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
    }
