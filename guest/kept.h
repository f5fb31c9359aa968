/* The last output of resumable commands and connections, which the next host may ask for again. */
#ifndef FLOTILLA_KEPT_H
#define FLOTILLA_KEPT_H

#include <stddef.h>
#include <stdint.h>

struct ring_pool;

/* One stream's last bytes, as many as a ring of its pool has. All zero: nothing is kept. */
struct kept {
	struct ring_pool *pool;
	uint8_t *ring;	/* NULL: not resumable */
	uint64_t total; /* bytes that were written since the stream began */
};

void kept_init(void);
void kept_open_command(struct kept *kept);
void kept_open_connection(struct kept *kept);
void kept_close(struct kept *kept);
void kept_append(struct kept *kept, const uint8_t *bytes, size_t length);
int kept_check(const struct kept *kept, uint64_t offset);
void kept_read(const struct kept *kept, uint64_t offset, uint8_t *bytes, size_t length);

#endif
