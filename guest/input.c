/*
 * The input of running commands and connections.
 *
 * Owns the bytes that a command has not read yet, in a buffer of the size of the credit for each channel.
 *
 * Always:
 * - The host may send as much as its credit allows. Credit is returned for bytes that the command has
 *   accepted.
 * - A command that has closed its input accepts everything: the rest is dropped.
 * - Input is watched only while bytes wait in the buffer.
 */
#include "input.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "output.h"
#include "watch.h"

/* Credit is returned in steps of this size, not per write. */
#define STDIN_CREDIT_STEP_BYTES (STDIN_WINDOW_BYTES / 4)
#define END_OF_TRANSMISSION 4 /* a terminal's end of input */

static uint8_t buffers[CHANNELS_ALL][STDIN_WINDOW_BYTES];

static uint8_t *buffer_of(const struct channel *channel)
{
	return buffers[channel->number - 1];
}

void input_close(struct channel *channel)
{
	/* A terminal and a connection have another descriptor, so closing this one would not end the watch. */
	if (channel->stdin_fd >= 0 && channel->stdin_is_watched)
		watch_remove(channel->stdin_fd);
	channel->stdin_is_watched = false;
	channel->stdin_head = channel->stdin_tail = 0;
	if (channel->stdin_fd >= 0)
		close(channel->stdin_fd);
	channel->stdin_fd = -1;
}

void input_give_credit(struct channel *channel)
{
	if (channel->stdin_consumed < STDIN_CREDIT_STEP_BYTES || channel->resume_until_ms > 0 || !output_has_room())
		return;
	/* The exit is a channel's last frame; the host may have sent more input before it received that. */
	if (channel->has_reported_exit)
		return;
	output_begin(GUEST_FRAME_STDIN_CREDIT, channel->number);
	output_u32(FIELD_BYTES, channel->stdin_consumed);
	output_end();
	channel->stdin_consumed = 0;
}

/* Writes as much as the command accepts. Returns how much; `length` if the command has closed its input. */
static uint32_t write_some(struct channel *channel, const uint8_t *bytes, uint32_t length)
{
	uint32_t done = 0;

	if (channel->is_connecting)
		return 0;
	while (channel->stdin_fd >= 0 && done < length) {
		ssize_t written = write(channel->stdin_fd, bytes + done, length - done);

		if (written >= 0)
			done += (uint32_t)written;
		else if (errno == EAGAIN)
			return done;
		else if (errno != EINTR) {
			/* The error is reported once; a read would then see an orderly end. */
			if (channel_is_connection(channel) && errno != EPIPE)
				channel->exit_code = CONNECTION_BROKEN;
			input_close(channel);
		}
	}
	return length;
}

static void end_now(struct channel *channel)
{
	const char end = END_OF_TRANSMISSION;

	if (channel->has_terminal && channel->stdin_fd >= 0 && write(channel->stdin_fd, &end, 1) < 0 && errno == EAGAIN)
		return; /* the terminal's input buffer is full of unread input */
	if (channel_is_connection(channel) && channel->stdin_fd >= 0)
		shutdown(channel->stdin_fd, SHUT_WR);
	input_close(channel);
}

void input_flush(struct channel *channel)
{
	const uint8_t *buffer = buffer_of(channel);
	uint32_t waiting = channel->stdin_tail - channel->stdin_head;
	uint32_t done = write_some(channel, buffer + channel->stdin_head, waiting);

	channel->stdin_consumed += done;
	input_give_credit(channel);
	if (done < waiting) {
		channel->stdin_head += done;
		return;
	}
	channel->stdin_head = channel->stdin_tail = 0;
	if (channel->stdin_has_ended)
		end_now(channel);
	if (channel->stdin_fd >= 0 && channel->stdin_is_watched) {
		watch_remove(channel->stdin_fd);
		channel->stdin_is_watched = false;
	}
}

/* Returns -EBADMSG when the host sends more than its credit allows. */
int input_write(struct channel *channel, const uint8_t *bytes, uint32_t length)
{
	uint8_t *buffer = buffer_of(channel);
	uint32_t waiting = channel->stdin_tail - channel->stdin_head;
	uint32_t done = 0;

	if (waiting == 0) {
		done = write_some(channel, bytes, length);
		channel->stdin_consumed += done;
		input_give_credit(channel);
	}
	if (length - done > STDIN_WINDOW_BYTES - waiting)
		return -EBADMSG;
	channel->stdin_total += length;
	if (done == length)
		return 0;
	if (channel->stdin_head > 0)
		memmove(buffer, buffer + channel->stdin_head, waiting);
	memcpy(buffer + waiting, bytes + done, length - done);
	channel->stdin_head = 0;
	channel->stdin_tail = waiting + length - done;
	if (!channel->stdin_is_watched)
		channel->stdin_is_watched = watch_add(channel, SOURCE_STDIN, channel->stdin_fd, EPOLLOUT);
	return 0;
}

void input_end(struct channel *channel)
{
	channel->stdin_has_ended = true;
	if (channel->stdin_head == channel->stdin_tail && !channel->is_connecting)
		end_now(channel);
}
