/* Frames and fields: decoding and the integer encoding. */
#ifndef FLOTILLA_FRAME_H
#define FLOTILLA_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol.h"

struct frame {
	uint8_t type; /* 0: only padding, no frame */
	uint8_t flags;
	uint32_t channel;
	uint32_t length;
	const uint8_t *payload; /* points into the input */
};

struct field {
	uint8_t tag;
	uint32_t length;
	const uint8_t *value;
};

/* The remaining fields of a message. */
struct fields {
	const uint8_t *at;
	const uint8_t *end;
};

ssize_t frame_next(const uint8_t *bytes, size_t size, struct frame *frame);
size_t frame_find_hello(const uint8_t *bytes, size_t size);
void frame_write_header(uint8_t *at, uint8_t type, uint32_t channel, uint32_t length);

int fields_next(struct fields *fields, struct field *field);
int field_u32(const struct field *field, uint32_t *number);
int field_u64(const struct field *field, uint64_t *number);
int field_text(const struct field *field, const char **text);

uint32_t read_u32(const uint8_t *at);
void write_u32(uint8_t *at, uint32_t number);

#endif
