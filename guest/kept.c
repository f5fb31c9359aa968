/*
 * The last output of resumable commands: what a host has been sent, but may not have delivered before it died.
 *
 * Owns one mapping of rings and the list of free ones. The memory of a ring is used from its first byte on, and a ring that
 * was released last is used first, so a guest pays for as many as are in use at the same time.
 *
 * Always: a ring holds the last KEPT_OUTPUT_BYTES of its stream, or all of it if there is less. A guest without memory for
 * the mapping runs its commands as well, but no host can resume them.
 */
#include "kept.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "log.h"
#include "protocol.h"

#define RINGS_MAX (2 * CHANNELS_MAX)
/* A released ring that has used more returns its memory. */
#define RETAINED_BYTES_MAX (16 * 1024)

static uint8_t *rings;
static uint16_t unused[RINGS_MAX];
static size_t unused_count;

void kept_init(void)
{
	size_t size = (size_t)RINGS_MAX * KEPT_OUTPUT_BYTES;
	void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mapped == MAP_FAILED) {
		log_line("commands cannot be resumed", NULL, -errno);
		return;
	}
	rings = mapped;
	for (size_t at = 0; at < RINGS_MAX; at++)
		unused[at] = (uint16_t)(RINGS_MAX - 1 - at);
	unused_count = RINGS_MAX;
}

void kept_open(struct kept *kept)
{
	if (unused_count > 0)
		kept->ring = rings + (size_t)unused[--unused_count] * KEPT_OUTPUT_BYTES;
}

void kept_close(struct kept *kept)
{
	if (kept->ring == NULL)
		return;
	if (kept->total > RETAINED_BYTES_MAX)
		madvise(kept->ring, KEPT_OUTPUT_BYTES, MADV_DONTNEED);
	unused[unused_count++] = (uint16_t)((size_t)(kept->ring - rings) / KEPT_OUTPUT_BYTES);
	*kept = (struct kept){0};
}

void kept_append(struct kept *kept, const uint8_t *bytes, size_t length)
{
	while (kept->ring != NULL && length > 0) {
		size_t at = (size_t)(kept->total % KEPT_OUTPUT_BYTES);
		size_t part = length < KEPT_OUTPUT_BYTES - at ? length : KEPT_OUTPUT_BYTES - at;

		memcpy(kept->ring + at, bytes, part);
		kept->total += part;
		bytes += part;
		length -= part;
	}
}

/* Returns 0 if everything from `offset` on is kept. */
int kept_check(const struct kept *kept, uint64_t offset)
{
	if (kept->ring == NULL || offset > kept->total || kept->total - offset > KEPT_OUTPUT_BYTES)
		return -ERANGE;
	return 0;
}

/* The caller has checked `offset`, and that there are `length` bytes. */
void kept_read(const struct kept *kept, uint64_t offset, uint8_t *bytes, size_t length)
{
	while (length > 0) {
		size_t at = (size_t)(offset % KEPT_OUTPUT_BYTES);
		size_t part = length < KEPT_OUTPUT_BYTES - at ? length : KEPT_OUTPUT_BYTES - at;

		memcpy(bytes, kept->ring + at, part);
		bytes += part;
		offset += part;
		length -= part;
	}
}
