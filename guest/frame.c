/*
 * The frame and field decoder: bytes to frames, payloads to fields.
 *
 * Stateless: every function reads only the bytes it is given. They come from the host, but may be malformed,
 * because a host can die in the middle of a frame.
 *
 * Always: a frame is returned only with its end byte. Never reads outside [bytes, bytes + size). This is the
 * fuzz target.
 */
#include "frame.h"

#include <errno.h>
#include <string.h>

uint32_t read_u32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void write_u32(uint8_t *at, uint32_t number)
{
	at[0] = (uint8_t)number;
	at[1] = (uint8_t)(number >> 8);
	at[2] = (uint8_t)(number >> 16);
	at[3] = (uint8_t)(number >> 24);
}

void frame_write_header(uint8_t *at, uint8_t type, uint32_t channel, uint32_t length)
{
	at[0] = FRAME_MAGIC;
	at[1] = type;
	at[2] = 0;
	at[3] = 0;
	write_u32(at + 4, channel);
	write_u32(at + 8, length);
}

/*
 * Reads the padding or the frame at the start of `bytes`. Returns its size, with frame->type 0 for padding; 0
 * when the frame is incomplete; -EBADMSG for invalid bytes.
 */
ssize_t frame_next(const uint8_t *bytes, size_t size, struct frame *frame)
{
	size_t at = 0;

	frame->type = 0;
	while (at < size && bytes[at] == 0)
		at++;
	if (at > 0)
		return (ssize_t)at;
	if (size == 0)
		return 0;
	if (bytes[0] != FRAME_MAGIC)
		return -EBADMSG;
	if (size < FRAME_HEADER_BYTES)
		return 0;
	uint32_t length = read_u32(bytes + 8);
	if (length > FRAME_PAYLOAD_BYTES_MAX || bytes[2] > FRAME_FLAG_MORE || bytes[3] != 0 || bytes[1] == 0)
		return -EBADMSG;
	if (size < length + FRAME_EXTRA_BYTES)
		return 0;
	if (bytes[FRAME_HEADER_BYTES + length] != FRAME_END)
		return -EBADMSG;
	frame->type = bytes[1];
	frame->flags = bytes[2];
	frame->channel = read_u32(bytes + 4);
	frame->length = length;
	frame->payload = bytes + FRAME_HEADER_BYTES;
	return (ssize_t)(length + FRAME_EXTRA_BYTES);
}

/* How many bytes to discard so that the rest starts with a possible hello frame. */
size_t frame_find_hello(const uint8_t *bytes, size_t size)
{
	static const uint8_t begin[] = {FRAME_MAGIC, HOST_FRAME_HELLO, 0, 0, 0, 0, 0, 0};

	for (size_t at = 0; at < size; at++) {
		size_t known = size - at < sizeof(begin) ? size - at : sizeof(begin);

		if (memcmp(bytes + at, begin, known) == 0)
			return at;
	}
	return size;
}

/* Returns 1 with the next field, 0 at the end, -EBADMSG for a malformed list. */
int fields_next(struct fields *fields, struct field *field)
{
	size_t left = (size_t)(fields->end - fields->at);

	if (left == 0)
		return 0;
	if (left < FIELD_HEADER_BYTES || fields->at[0] == 0)
		return -EBADMSG;
	field->tag = fields->at[0];
	field->length = read_u32(fields->at + 1);
	field->value = fields->at + FIELD_HEADER_BYTES;
	if (field->length > left - FIELD_HEADER_BYTES)
		return -EBADMSG;
	fields->at = field->value + field->length;
	return 1;
}

int field_u32(const struct field *field, uint32_t *number)
{
	if (field->length != 4)
		return -EBADMSG;
	*number = read_u32(field->value);
	return 0;
}

int field_u64(const struct field *field, uint64_t *number)
{
	if (field->length != 8)
		return -EBADMSG;
	*number = (uint64_t)read_u32(field->value) | (uint64_t)read_u32(field->value + 4) << 32;
	return 0;
}

/* The text is part of the message and ends with its only zero byte. */
int field_text(const struct field *field, const char **text)
{
	if (field->length == 0 || memchr(field->value, 0, field->length) != field->value + field->length - 1)
		return -EBADMSG;
	*text = (const char *)field->value;
	return 0;
}
