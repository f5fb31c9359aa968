/*
 * The last output of resumable commands and connections: what a host has been sent, but may not have
 * delivered before it died.
 *
 * Owns a mapping of rings for each kind, and the lists of free ones. The memory of a ring is used from its
 * first byte on, and a ring that was released last is used first, so a guest pays for as many as are in use
 * at the same time.
 *
 * Always: a ring holds the last bytes of its stream, or all of it if there is less. A guest without memory
 * for the mapping runs its commands as well, but no host can resume them; it takes no connections then.
 */
#include "kept.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "log.h"
#include "protocol.h"

#define COMMAND_RINGS (2 * CHANNELS_MAX)
/* A released ring that has used more returns its memory. */
#define RETAINED_BYTES_MAX (16 * 1024)

struct ring_pool {
	size_t ring_bytes;
	uint8_t *rings;
	uint16_t *unused;
	size_t unused_count;
};

static uint16_t unused_of_commands[COMMAND_RINGS];
static uint16_t unused_of_connections[CONNECTIONS_MAX];
static struct ring_pool of_commands = {.ring_bytes = KEPT_OUTPUT_BYTES, .unused = unused_of_commands};
static struct ring_pool of_connections = {.ring_bytes = CONNECTION_WINDOW_BYTES, .unused = unused_of_connections};

static void map(struct ring_pool *pool, size_t count)
{
	void *mapped = mmap(NULL, count * pool->ring_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mapped == MAP_FAILED) {
		log_line("commands or connections cannot be resumed", NULL, -errno);
		return;
	}
	pool->rings = mapped;
	for (size_t at = 0; at < count; at++)
		pool->unused[at] = (uint16_t)(count - 1 - at);
	pool->unused_count = count;
}

void kept_init(void)
{
	map(&of_commands, COMMAND_RINGS);
	map(&of_connections, CONNECTIONS_MAX);
}

static void take(struct kept *kept, struct ring_pool *pool)
{
	if (pool->unused_count == 0)
		return;
	kept->pool = pool;
	kept->ring = pool->rings + (size_t)pool->unused[--pool->unused_count] * pool->ring_bytes;
}

void kept_open_command(struct kept *kept)
{
	take(kept, &of_commands);
}

void kept_open_connection(struct kept *kept)
{
	take(kept, &of_connections);
}

void kept_close(struct kept *kept)
{
	struct ring_pool *pool = kept->pool;

	if (kept->ring == NULL)
		return;
	if (kept->total > RETAINED_BYTES_MAX)
		madvise(kept->ring, pool->ring_bytes, MADV_DONTNEED);
	pool->unused[pool->unused_count++] = (uint16_t)((size_t)(kept->ring - pool->rings) / pool->ring_bytes);
	*kept = (struct kept){0};
}

void kept_append(struct kept *kept, const uint8_t *bytes, size_t length)
{
	while (kept->ring != NULL && length > 0) {
		size_t at = (size_t)(kept->total % kept->pool->ring_bytes);
		size_t part = length < kept->pool->ring_bytes - at ? length : kept->pool->ring_bytes - at;

		memcpy(kept->ring + at, bytes, part);
		kept->total += part;
		bytes += part;
		length -= part;
	}
}

/* Returns 0 if everything from `offset` on is kept. */
int kept_check(const struct kept *kept, uint64_t offset)
{
	if (kept->ring == NULL || offset > kept->total || kept->total - offset > kept->pool->ring_bytes)
		return -ERANGE;
	return 0;
}

/* The caller has checked `offset`, and that there are `length` bytes. */
void kept_read(const struct kept *kept, uint64_t offset, uint8_t *bytes, size_t length)
{
	while (length > 0) {
		size_t at = (size_t)(offset % kept->pool->ring_bytes);
		size_t part = length < kept->pool->ring_bytes - at ? length : kept->pool->ring_bytes - at;

		memcpy(bytes, kept->ring + at, part);
		bytes += part;
		offset += part;
		length -= part;
	}
}
