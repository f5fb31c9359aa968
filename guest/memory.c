/*
 * Returns memory to the host that commands have used and freed.
 *
 * The kernel's balloon driver reports free memory to the host, which takes it. The driver is loaded only
 * after commands have used a lot of memory: when loaded it scans all free memory once and writes a page of
 * the kernel for every few MB. That costs 8 MB per guest of 8 GB, which would never pay off in a machine that
 * does little.
 *
 * Always: once loaded, it stays. Memory usage is checked when a command ends, and every CHECK_MS while any
 * runs, because a server may use and free memory for weeks. A guest without commands is not woken.
 *
 * The agent itself uses small pages: its many buffers are mostly unused, and with huge pages the kernel would
 * allocate and zero 2 MB for the first byte of each.
 */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "log.h"

#define DRIVER "/balloon.ko"
#define MUCH_BYTES (128ULL << 20)
#define MUCH_SHARE 4 /* a small guest: this fraction of its memory */
#define CHECK_MS 10000

static int driver_fd = -1;
static uint64_t most_free;

extern char __bss_start[], _end[]; /* the linker's symbols for the buffers' section */

/* Call before any of the buffers is used. */
void memory_use_small_pages(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = ((uintptr_t)__bss_start + page - 1) / page * page;

	/* Best effort: otherwise the agent only uses more memory. */
	(void)madvise((void *)start, (uintptr_t)_end - start, MADV_NOHUGEPAGE);
}

/* Opens the driver now, because its file is on the initial file system, which a machine cannot see. */
void memory_init(void)
{
	driver_fd = open(DRIVER, O_RDONLY | O_CLOEXEC);
	if (driver_fd >= 0)
		unlink(DRIVER);
}

static void load_driver(void)
{
	int error = syscall(SYS_finit_module, driver_fd, "", 0) == 0 || errno == EEXIST ? 0 : -errno;

	if (error != 0)
		log_line("cannot load the driver", "virtio_balloon", error);
	close(driver_fd);
	driver_fd = -1;
}

/* `peak_kilobytes`: peak memory of a process that has ended; 0 without one. */
void memory_check(long peak_kilobytes)
{
	struct sysinfo info;

	if (driver_fd < 0 || sysinfo(&info) != 0)
		return;
	uint64_t is_free = (uint64_t)info.freeram * info.mem_unit;
	uint64_t much = (uint64_t)info.totalram * info.mem_unit / MUCH_SHARE;
	if (much > MUCH_BYTES)
		much = MUCH_BYTES;
	if (is_free > most_free)
		most_free = is_free;
	if (most_free - is_free >= much || (uint64_t)peak_kilobytes * 1024 >= much)
		load_driver();
}

/* Milliseconds until the next check is due: -1 without limit. */
int memory_timeout_ms(bool has_children)
{
	return driver_fd >= 0 && has_children ? CHECK_MS : -1;
}
