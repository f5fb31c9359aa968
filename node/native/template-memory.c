/*
 * Keeps the memory of a VMM small that starts from a template, and the template safe from it. Loaded into QEMU with LD_PRELOAD.
 *
 * The template's memory: QEMU opens the file behind a guest's memory for writing even when it maps it privately, and punches
 * holes into it when a guest gives memory back: either would let one machine's VMM reach all others of its template. So the
 * file belongs to root and is read-only, and here the one open that names it becomes a read-only one, which is all a private
 * mapping needs; a hole in it is left to the madvise that QEMU calls next, which frees the machine's own copy.
 *
 * Translated code: an emulating QEMU keeps what it has translated until its buffer is full. Half of what a prepared VM holds
 * then was run once, to mount a disk, and is never run again: 10 MB. Opening the file named by FLOTILLA_FORGET_CODE, which does
 * not exist, makes the VMM forget all of it; what is needed again is translated again. A VMM that has other functions
 * than the ones looked up here forgets nothing, and works.
 *
 * The disassembler: libcapstone's tables are full of addresses, so loading it writes 1.3 MB of each VMM's own memory, and
 * QEMU uses it only for logs that nobody asks for. This library bears its name, so that the loader takes this one for it.
 *
 * Always: only these two names are treated so; everything else goes to the kernel as it came.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What QEMU puts at the start of its buffer for good; a few hundred bytes. */
#define PROLOGUE_BYTES 65536

/* As QEMU declares them (include/hw/core/cpu.h, include/exec/exec-all.h). */
struct cpu;
union cpu_data {
	int host_int;
	unsigned long host_ulong;
	void *host_ptr;
	uint64_t target_ptr;
};
typedef void cpu_work(struct cpu *cpu, union cpu_data data);

static int template_fd = -1;
static char *code_start, *code_end; /* of the buffer for translated code */

/*
 * Every thread translates into a place of its own, and QEMU asks for huge pages there: of 2 MB each, most of the last one
 * is never used.
 */
__attribute__((constructor)) static void refuse_huge_pages(void)
{
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

/* The buffer is the only memory that is made writable and executable: part by part, from its start. */
int mprotect(void *address, size_t length, int protection)
{
	int result = (int)syscall(SYS_mprotect, address, length, protection);

	if (result == 0 && (protection & PROT_WRITE) != 0 && (protection & PROT_EXEC) != 0) {
		if (code_start == NULL)
			code_start = address;
		code_end = (char *)address + length;
	}
	return result;
}

/* Runs while no processor of the guest does. */
static void forget(struct cpu *cpu, union cpu_data data)
{
	void (*tb_flush)(struct cpu *);

	memcpy(&tb_flush, &data.host_ptr, sizeof(tb_flush));
	tb_flush(cpu);
	madvise(code_start + PROLOGUE_BYTES, (size_t)(code_end - code_start) - PROLOGUE_BYTES, MADV_DONTNEED);
	malloc_trim(0);
}

static void forget_code(void)
{
	struct cpu *(*qemu_get_cpu)(int index);
	void (*async_safe_run_on_cpu)(struct cpu *, cpu_work *, union cpu_data);
	void *get = dlsym(RTLD_DEFAULT, "qemu_get_cpu"), *run = dlsym(RTLD_DEFAULT, "async_safe_run_on_cpu");
	union cpu_data flush = {.host_ptr = dlsym(RTLD_DEFAULT, "tb_flush")};

	if (code_start == NULL || get == NULL || run == NULL || flush.host_ptr == NULL)
		return;
	memcpy(&qemu_get_cpu, &get, sizeof(get));
	memcpy(&async_safe_run_on_cpu, &run, sizeof(run));
	async_safe_run_on_cpu(qemu_get_cpu(0), forget, flush);
}

/* All that QEMU calls of libcapstone. After the first has refused it calls no other, so none looks at what it is given. */
#define NO_SUCH_ARCHITECTURE 2 /* CS_ERR_ARCH */

int cs_open(void)
{
	return NO_SUCH_ARCHITECTURE;
}

int cs_option(void)
{
	return NO_SUCH_ARCHITECTURE;
}

int cs_close(void)
{
	return NO_SUCH_ARCHITECTURE;
}

void *cs_malloc(void)
{
	return NULL;
}

int cs_disasm_iter(void)
{
	return 0;
}

static int is_named(const char *path, const char *variable)
{
	const char *name = getenv(variable);

	return name != NULL && strcmp(path, name) == 0;
}

static int open_file(const char *path, int flags, mode_t mode)
{
	int is_template = is_named(path, "FLOTILLA_TEMPLATE_MEMORY");

	if (is_template)
		flags = (flags & ~(O_ACCMODE | O_CREAT | O_TRUNC)) | O_RDONLY;
	else if (is_named(path, "FLOTILLA_FORGET_CODE"))
		forget_code();
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

/* What open64 becomes when the C library's checks are compiled in. */
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
