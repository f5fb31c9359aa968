/*
 * The queue to the host: one buffer that frames are written into and the port is written from.
 *
 * Owns output_buffer. A command's output is read from its pipe directly into it, after room for the header,
 * so each byte is copied once.
 *
 * Always: callers that add a message have checked output_has_room() since the last event, which guarantees
 * OUTPUT_RESERVE_BYTES; callers that add data have checked output_data_room(). While the host does not read,
 * nothing more is read from pipes or from the host, so the buffer never overflows.
 */
#include "output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "frame.h"
#include "log.h"

#define OUTPUT_BUFFER_BYTES_MAX (256 * 1024)
/* Room for the answers to one event, each of which has at most a message text and some fields. */
#define OUTPUT_RESERVE_BYTES (8 * 1024)
/* With less room, data waits until the host has read more, so that it is not sent in tiny frames. */
#define OUTPUT_DATA_BYTES_MIN (4 * 1024)

static uint8_t output_buffer[OUTPUT_BUFFER_BYTES_MAX];
static size_t output_head; /* first byte that is not written yet */
static size_t output_tail; /* end of the complete frames */
static size_t output_open; /* end of the message being written, which starts at output_tail */

/* Moves the queue to the front of the buffer when the room behind it is too small. */
static void make_room(size_t needed)
{
	if (output_head == 0 || sizeof(output_buffer) - output_tail >= needed)
		return;
	memmove(output_buffer, output_buffer + output_head, output_tail - output_head);
	output_tail -= output_head;
	output_head = 0;
}

static size_t free_bytes(void)
{
	return sizeof(output_buffer) - (output_tail - output_head);
}

bool output_has_room(void)
{
	return free_bytes() >= OUTPUT_RESERVE_BYTES;
}

/* How many bytes of data fit; 0 when the host should read first. */
size_t output_data_room(void)
{
	size_t used = OUTPUT_RESERVE_BYTES + FRAME_EXTRA_BYTES;
	size_t room = free_bytes() > used ? free_bytes() - used : 0;

	if (room < OUTPUT_DATA_BYTES_MIN)
		return 0;
	return room < FRAME_PAYLOAD_BYTES_MAX ? room : FRAME_PAYLOAD_BYTES_MAX;
}

/* Where to put data. output_data_sent() turns it into a frame; without that call the data is ignored. */
uint8_t *output_data(void)
{
	make_room(output_data_room() + FRAME_EXTRA_BYTES + OUTPUT_RESERVE_BYTES);
	return output_buffer + output_tail + FRAME_HEADER_BYTES;
}

void output_data_sent(uint8_t type, uint32_t channel, size_t length)
{
	frame_write_header(output_buffer + output_tail, type, channel, (uint32_t)length);
	output_tail += FRAME_HEADER_BYTES + length;
	output_buffer[output_tail++] = FRAME_END;
}

/*
 * Starts a message with `size` bytes more than every message may have; output_data_room() has guaranteed
 * them.
 */
void output_begin_large(uint8_t type, uint32_t channel, size_t size)
{
	make_room(OUTPUT_RESERVE_BYTES + size);
	frame_write_header(output_buffer + output_tail, type, channel, 0);
	output_open = output_tail + FRAME_HEADER_BYTES;
}

void output_begin(uint8_t type, uint32_t channel)
{
	output_begin_large(type, channel, 0);
}

void output_bytes(const void *bytes, size_t length)
{
	if (length > sizeof(output_buffer) - FRAME_EXTRA_BYTES - output_open)
		log_fatal("a message to the host exceeds its reserved room", -EOVERFLOW);
	memcpy(output_buffer + output_open, bytes, length);
	output_open += length;
}

void output_field(uint8_t tag, const void *value, size_t length)
{
	uint8_t header[FIELD_HEADER_BYTES] = {tag};

	write_u32(header + 1, (uint32_t)length);
	output_bytes(header, sizeof(header));
	output_bytes(value, length);
}

void output_u32(uint8_t tag, uint32_t number)
{
	uint8_t value[4];

	write_u32(value, number);
	output_field(tag, value, sizeof(value));
}

void output_u64(uint8_t tag, uint64_t number)
{
	uint8_t value[8];

	write_u32(value, (uint32_t)number);
	write_u32(value + 4, (uint32_t)(number >> 32));
	output_field(tag, value, sizeof(value));
}

void output_text(uint8_t tag, const char *text)
{
	size_t length = strnlen(text, GUEST_MESSAGE_BYTES_MAX - 1);

	output_field(tag, text, length);
	/* A separate zero byte, because the text may have been cut. */
	output_bytes("", 1);
	write_u32(output_buffer + output_open - length - 1 - 4, (uint32_t)length + 1);
}

void output_end(void)
{
	write_u32(output_buffer + output_tail + 8, (uint32_t)(output_open - output_tail - FRAME_HEADER_BYTES));
	output_buffer[output_open++] = FRAME_END;
	output_tail = output_open;
}

void output_done(uint32_t request)
{
	output_begin(GUEST_FRAME_DONE, 0);
	output_u32(FIELD_REQUEST, request);
	output_end();
}

/* `channel` 0 refuses the request; another number ends that channel. */
void output_failed(uint32_t channel, uint32_t request, const char *message)
{
	output_begin(GUEST_FRAME_FAILED, channel);
	if (channel == 0)
		output_u32(FIELD_REQUEST, request);
	output_text(FIELD_MESSAGE, message);
	output_end();
}

bool output_is_empty(void)
{
	return output_head == output_tail;
}

/* Discards what was meant for an earlier host. The new one finds its answer by the nonce. */
void output_discard(void)
{
	output_head = 0;
	output_tail = 0;
}

/* Returns 0 when everything is written, -EAGAIN when the port is full. */
int output_flush(int fd)
{
	while (output_head < output_tail) {
		ssize_t written = write(fd, output_buffer + output_head, output_tail - output_head);

		if (written < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		output_head += (size_t)written;
	}
	output_discard();
	return 0;
}
