/*
 * Protects a template from the VMMs that start from it. Loaded into QEMU with LD_PRELOAD.
 *
 * QEMU opens the file behind a guest's memory for writing even when it maps it privately, and punches holes
 * into it when a guest returns memory. Either would let one machine's VMM affect all others of its template.
 * So the file belongs to root and is read-only. This library turns the open of that file into a read-only
 * one, which is enough for a private mapping, and ignores holes in it; the madvise that QEMU calls next frees
 * the machine's own copy.
 *
 * It also makes a userfaultfd, with which memory-watch.c learns what the guest writes: one belongs to the
 * memory of the process that made it, and QEMU's system call filter refuses it later. It does nothing until
 * then. Kernels without it: the machine is paused for longer when it moves.
 *
 * A path that is a request to the fence (fence.c) is not opened.
 *
 * Always: only the file named by FLOTILLA_TEMPLATE_MEMORY is treated like this; all other calls are passed on
 * unchanged.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fence.h"

/* Since Linux 5.11: without faults of the kernel, which needs no privilege. Older headers lack it. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static int template_fd = -1;

__attribute__((constructor)) static void make_userfaultfd(void)
{
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	(void)fd;
}

static int open_file(const char *path, int flags, mode_t mode)
{
	if (fence_of_path(path))
		return -1;
	const char *template = getenv("FLOTILLA_TEMPLATE_MEMORY");
	int is_template = template != NULL && strcmp(path, template) == 0;

	if (is_template)
		flags = (flags & ~(O_ACCMODE | O_CREAT | O_TRUNC)) | O_RDONLY;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if (is_template && fd >= 0)
		template_fd = fd;
	return fd;
}

int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;

	if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
		va_list arguments;
		va_start(arguments, flags);
		mode = va_arg(arguments, mode_t);
		va_end(arguments);
	}
	return open_file(path, flags, mode);
}

/* The name of open64 when the C library's fortification is enabled. */
int __open64_2(const char *path, int flags)
{
	return open_file(path, flags, 0);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length)
{
	if (fd >= 0 && fd == template_fd)
		return 0;
	return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}
