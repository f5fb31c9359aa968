/*
 * Gives memory back to the host that commands have used and freed.
 *
 * The kernel's balloon driver tells the host which memory is free, and the host takes it. It is loaded when commands have
 * used much, and not before: it goes through all free memory once and writes a page of the kernel's own for every few MB of
 * it. That is 8 MB of each guest of 8 GB, which a machine that does little would never get back.
 *
 * Always: once loaded it stays. What commands have used is looked at when one ends, and every LOOK_MS while any runs: a
 * server may use and free memory for weeks. Nobody wakes a guest in which nothing runs.
 *
 * The agent itself takes small pages only: its buffers are many and mostly never used, and the kernel would give it, and write,
 * 2 MB for the first byte of each.
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
#define MUCH_SHARE 4 /* of a small guest's memory, one part of so many */
#define LOOK_MS 10000

static int driver_fd = -1;
static uint64_t most_free;

extern char __bss_start[], _end[]; /* the linker's names for where the buffers are */

/* Before any of the buffers is used. */
void memory_spare(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = ((uintptr_t)__bss_start + page - 1) / page * page;

	/* Without it the agent is larger, and works. */
	(void)madvise((void *)start, (uintptr_t)_end - start, MADV_NOHUGEPAGE);
}

/* Holds the driver: its file belongs to a file system that a machine does not see. */
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

/* `peak_kilobytes`: what a process that has ended has used at most; 0 when none has. */
void memory_look(long peak_kilobytes)
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

/* How long the loop may wait until it looks again: -1 without limit. */
int memory_timeout_ms(bool has_children)
{
	return driver_fd >= 0 && has_children ? LOOK_MS : -1;
}
