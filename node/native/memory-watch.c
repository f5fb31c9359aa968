/*
 * Says which pages of a VMM's guest memory have changed, while the guest runs: for a move to another node.
 *
 *     memory-watch PID ADDRESS BYTES
 *
 * The memory is a private mapping of a template, so a changed page belongs to no file. Since the round
 * before: the kernel protects pages against writes, and removes the protection itself at the first write
 * (userfaultfd, asynchronous write protection). The userfaultfd is the VMM's own, made by template-memory.c;
 * this program takes a copy of it.
 *
 * Standard input has a byte for each request, standard output its answer, in the machine's byte order:
 *
 *     r   a round: u64 count, then count times u64 offset, u64 bytes: the pages to send, in order. The first has all changed pages.
 *         Also pages that were in an earlier round and have the template's content again, because the guest
 *         returned them.
 *
 * Once it is ready it answers a count of 0 without a request. The end of the input ends the watch: the kernel
 * then removes every protection.
 *
 * Always: a VMM may have been taken over by its guest. Nothing of it is trusted but its page map, which the
 * kernel writes; the ranges are bounded by the arguments, and memory here by a bit for each page. Any failure
 * ends the program with a line on standard error.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Definitions of <linux/fs.h> and <linux/userfaultfd.h> since Linux 6.7, which older headers lack. */
struct region {
	uint64_t start, end, categories;
};

struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define SCAN _IOWR('f', 16, struct scan)
#define IS_WRITTEN (1u << 1)
#define IS_FILE (1u << 2)
#define IS_PRESENT (1u << 3)
#define IS_SWAPPED (1u << 4)
#define PROTECT_MATCHING (1u << 0)
#define FEATURE_ASYNC (1ull << 15)

#define PAGE 4096ull
#define REGIONS 4096
#define ADDRESS_MAX (1ull << 47)

static uint64_t address, bytes;
static int uffd = -1, page_map = -1;
/*
 * A bit for each page: it was in a round; it belongs to no file now; it is not in memory; it is in this
 * round.
 */
static unsigned char *sent, *own, *swapped, *changed;

static void fail(const char *what)
{
	fprintf(stderr, "memory-watch: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t number(const char *text)
{
	char *end;

	errno = 0;
	uint64_t value = strtoull(text, &end, 0);
	if (errno != 0 || *end != '\0' || end == text || *text == '-')
		errno = EINVAL, fail(text);
	return value;
}

/* The VMM's userfaultfd. A link that names a file begins with a slash, so none can look like this. */
static int find_uffd(const char *pid)
{
	static const char name[] = "anon_inode:[userfaultfd]";
	char path[64], target[sizeof(name) + 1];
	int found = -1;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	DIR *directory = opendir(path);
	if (directory == NULL)
		fail(path);
	for (struct dirent *entry; found < 0 && (entry = readdir(directory)) != NULL;) {
		ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target));
		if (length == (ssize_t)sizeof(name) - 1 && memcmp(target, name, sizeof(name) - 1) == 0)
			found = (int)number(entry->d_name);
	}
	closedir(directory);
	if (found < 0)
		errno = ENOENT, fail("the VMM has no userfaultfd");
	return found;
}

static void begin(const char *pid)
{
	char path[64];
	int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)number(pid), 0);

	if (pidfd < 0)
		fail("pidfd_open");
	uffd = (int)syscall(SYS_pidfd_getfd, pidfd, find_uffd(pid), 0);
	if (uffd < 0)
		fail("pidfd_getfd");
	close(pidfd);
	struct uffdio_api api = {.api = UFFD_API, .features = FEATURE_ASYNC};
	/* An earlier watch of this VMM has made it ready. */
	if (ioctl(uffd, UFFDIO_API, &api) != 0 && errno != EINVAL)
		fail("UFFDIO_API");
	struct uffdio_range range = {.start = address, .len = bytes};
	/* An earlier watch may have been killed. */
	ioctl(uffd, UFFDIO_UNREGISTER, &range);
	struct uffdio_register registration = {.range = range, .mode = UFFDIO_REGISTER_MODE_WP};
	if (ioctl(uffd, UFFDIO_REGISTER, &registration) != 0)
		fail("UFFDIO_REGISTER");
	snprintf(path, sizeof(path), "/proc/%s/pagemap", pid);
	page_map = open(path, O_RDONLY | O_CLOEXEC);
	if (page_map < 0)
		fail(path);
}

static void mark(unsigned char *bits, uint64_t from, uint64_t to)
{
	for (uint64_t page = (from - address) / PAGE; page < (to - address) / PAGE; page++)
		bits[page / 8] = (unsigned char)(bits[page / 8] | 1u << page % 8);
}

/*
 * Marks the pages of no file; with `is_round` only those written since the last round, and protects these
 * again. Other pages that are not in memory are marked in `swapped`: the kernel leaves a protected page that
 * was returned like that too.
 */
static void scan(unsigned char *bits, unsigned char *swapped, int is_round)
{
	static struct region regions[REGIONS];
	struct scan request = {
		.size = sizeof(request),
		.flags = is_round ? PROTECT_MATCHING : 0,
		.start = address,
		.end = address + bytes,
		.vec = (uint64_t)(uintptr_t)regions,
		.vec_len = REGIONS,
		.category_inverted = IS_FILE,
		.category_mask = IS_FILE | (is_round ? IS_WRITTEN : 0),
		.category_anyof_mask = IS_PRESENT | IS_SWAPPED,
		.return_mask = IS_PRESENT | IS_SWAPPED,
	};

	while (request.start < address + bytes) {
		long count = ioctl(page_map, SCAN, &request);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			fail("PAGEMAP_SCAN");
		for (long at = 0; at < count; at++) {
			if (regions[at].start < address || regions[at].end > address + bytes)
				errno = ERANGE, fail("PAGEMAP_SCAN");
			mark(bits, regions[at].start, regions[at].end);
			if (swapped != NULL && (regions[at].categories & IS_SWAPPED) != 0)
				mark(swapped, regions[at].start, regions[at].end);
		}
		if (request.walk_end <= request.start)
			errno = ERANGE, fail("PAGEMAP_SCAN");
		request.start = request.walk_end;
	}
}

static int bit(const unsigned char *bits, uint64_t page)
{
	return bits[page / 8] >> page % 8 & 1;
}

/* Writes the runs of marked pages, or only counts them. */
static uint64_t runs(int is_written)
{
	uint64_t pages = bytes / PAGE, count = 0;

	for (uint64_t page = 0; page < pages;) {
		if (page % 8 == 0 && changed[page / 8] == 0) {
			page += 8;
			continue;
		}
		if (!bit(changed, page)) {
			page++;
			continue;
		}
		uint64_t first = page;
		while (page < pages && bit(changed, page))
			page++;
		uint64_t run[2] = {first * PAGE, (page - first) * PAGE};
		if (is_written && fwrite(run, sizeof(run), 1, stdout) != 1)
			fail("write");
		count++;
	}
	return count;
}

static void answer(uint64_t count)
{
	if (fwrite(&count, sizeof(count), 1, stdout) != 1 || (count > 0 && runs(1) != count) || fflush(stdout) != 0)
		fail("write");
}

static void take_round(void)
{
	size_t size = (size_t)(bytes / PAGE + 7) / 8;

	memset(changed, 0, size);
	memset(own, 0, size);
	memset(swapped, 0, size);
	scan(changed, NULL, 1);
	scan(own, swapped, 0);
	for (size_t at = 0; at < size; at++) {
		unsigned char now = changed[at];
		/* What was sent and may have the template's content again. */
		changed[at] = (unsigned char)(now | (sent[at] & (~own[at] | swapped[at])));
		sent[at] = (unsigned char)((sent[at] & own[at]) | now);
	}
	answer(runs(0));
}

int main(int count, char **arguments)
{
	if (count != 4)
		errno = EINVAL, fail("PID ADDRESS BYTES");
	address = number(arguments[2]);
	bytes = number(arguments[3]);
	if (address % PAGE != 0 || bytes % PAGE != 0 || bytes == 0 || address > ADDRESS_MAX || bytes > ADDRESS_MAX - address)
		errno = EINVAL, fail("PID ADDRESS BYTES");
	size_t size = (size_t)(bytes / PAGE + 7) / 8;
	sent = calloc(4, size);
	if (sent == NULL)
		fail("memory");
	own = sent + size;
	swapped = own + size;
	changed = swapped + size;
	begin(arguments[1]);
	answer(0);
	for (char request; read(STDIN_FILENO, &request, 1) == 1;) {
		if (request != 'r')
			errno = EINVAL, fail("request");
		take_round();
	}
	struct uffdio_range range = {.start = address, .len = bytes};
	ioctl(uffd, UFFDIO_UNREGISTER, &range);
	return 0;
}
