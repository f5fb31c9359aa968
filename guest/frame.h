/* Frames and fields, as frame.c reads and writes them. */
#ifndef FLOTILLA_FRAME_H
#define FLOTILLA_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol.h"

struct frame {
	uint8_t type; /* 0: there was no frame, only padding */
	uint8_t flags;
	uint32_t channel;
	uint32_t length;
	const uint8_t *payload; /* where it lies in the bytes that were given */
};

struct field {
	uint8_t tag;
	uint32_t length;
	const uint8_t *value;
};

/* What is left of a message's fields. */
struct fields {
	const uint8_t *at;
	const uint8_t *end;
};

ssize_t frame_next(const uint8_t *bytes, size_t size, struct frame *frame);
size_t frame_find_hello(const uint8_t *bytes, size_t size);
void frame_write_header(uint8_t *at, uint8_t type, uint32_t channel, uint32_t length);

int fields_next(struct fields *fields, struct field *field);
int field_number(const struct field *field, uint32_t *number);
int field_time(const struct field *field, uint64_t *time);
int field_text(const struct field *field, const char **text);

uint32_t read_u32(const uint8_t *at);
void write_u32(uint8_t *at, uint32_t number);

#endif
