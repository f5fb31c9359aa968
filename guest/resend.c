/*
 * Sends the output of channels to the host, and sends kept output again to the next host of a channel.
 *
 * Always:
 * - Every byte that is sent costs credit, and what is kept comes before new output.
 * - A position in `resent` says from where on the present host has not been sent anything.
 */
#include "resend.h"

#include "kept.h"
#include "output.h"

/* How many kept bytes the present host has not been sent. */
size_t resend_left(const struct output_stream *stream)
{
	return (size_t)(stream->kept.total - stream->resent);
}

/* How many bytes the credit and the queue permit now. */
size_t resend_permitted(const struct output_stream *stream)
{
	size_t size = output_data_room();

	if (stream->credit <= OUTPUT_FRAME_COST_BYTES)
		return 0;
	return size > stream->credit - OUTPUT_FRAME_COST_BYTES ? stream->credit - OUTPUT_FRAME_COST_BYTES : size;
}

/* A killed command's output is sent only as far as the credit permits. */
bool resend_waits(const struct channel *channel)
{
	return !channel->is_killed && resend_left(&channel->outputs[0]) + resend_left(&channel->outputs[1]) > 0;
}

/* The next host has everything before the offset. */
void resend_begin(const struct channel *channel, struct output_stream *stream, uint64_t offset)
{
	stream->resent = offset;
	stream->credit = channel->kind->window_bytes;
}

static void send_bytes(const struct channel *channel, struct output_stream *stream, size_t size)
{
	uint8_t type = stream == &channel->outputs[0] ? GUEST_FRAME_STDOUT : GUEST_FRAME_STDERR;

	output_data_sent(type, channel->number, size);
	stream->credit -= (uint32_t)size + OUTPUT_FRAME_COST_BYTES;
}

/* Sends again what the previous host may not have delivered. */
void resend_kept(const struct channel *channel, struct output_stream *stream)
{
	while (resend_left(stream) > 0) {
		size_t size = resend_permitted(stream);

		if (size == 0)
			return;
		if (size > resend_left(stream))
			size = resend_left(stream);
		kept_read(&stream->kept, stream->resent, output_data(), size);
		stream->resent += size;
		send_bytes(channel, stream, size);
	}
}

/* Sends what was read into output_data(), and keeps it. */
void resend_send_new(const struct channel *channel, struct output_stream *stream, size_t size)
{
	kept_append(&stream->kept, output_data(), size);
	stream->resent = stream->kept.total;
	send_bytes(channel, stream, size);
}
