/* The last output of resumable commands, which the next host may ask for again. */
#ifndef FLOTILLA_KEPT_H
#define FLOTILLA_KEPT_H

#include <stddef.h>
#include <stdint.h>

/* One stream's last KEPT_OUTPUT_BYTES. All zero: nothing is kept. */
struct kept {
	uint8_t *ring;	/* NULL: not resumable */
	uint64_t total; /* bytes that the command has written since it started */
};

void kept_init(void);
void kept_open(struct kept *kept);
void kept_close(struct kept *kept);
void kept_append(struct kept *kept, const uint8_t *bytes, size_t length);
int kept_check(const struct kept *kept, uint64_t offset);
void kept_read(const struct kept *kept, uint64_t offset, uint8_t *bytes, size_t length);

#endif
