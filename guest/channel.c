/*
 * The table of running commands: moves their input and output, and ends a channel when its command has ended.
 *
 * Owns the channels, their pipes and the buffers for input that commands have not read yet.
 *
 * Always:
 * - A command's output is read only while the host has given credit for it and the queue to the host has room; else its
 *   pipe fills and it waits. So a host that does not read one command stops that one only.
 * - A channel ends when its process has exited and what it had written until then is sent, even when its children hold
 *   the pipe open and go on writing.
 * - Pipes are watched level-triggered, and taken out of the set while they may not be read: an idle guest does nothing.
 */
#include "channel.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cgroup.h"
#include "output.h"

/* Credit for input goes back in parts of this size, not per write. */
#define STDIN_CREDIT_STEP_BYTES (STDIN_WINDOW_BYTES / 4)
#define GRACE_MS_MAX 60000
#define END_OF_TRANSMISSION 4 /* what a terminal takes for the end of input */

static struct channel channels[CHANNELS_MAX];
static int last_sender;
static uint8_t stdin_buffers[CHANNELS_MAX][STDIN_WINDOW_BYTES];
static int epoll_fd;
static int graces; /* channels with kill_at_ms */

void channel_init(int epoll)
{
	epoll_fd = epoll;
}

/* NULL when there cannot be such a channel; it may be closed. */
struct channel *channel_get(uint32_t number)
{
	return number >= 1 && number <= CHANNELS_MAX ? &channels[number - 1] : NULL;
}

uint32_t channel_number(const struct channel *channel)
{
	return (uint32_t)(channel - channels) + 1;
}

/* Makes the channel fresh; the caller fills in the process and its descriptors. */
void channel_open(struct channel *channel)
{
	uint32_t generation = channel->generation + 1;

	memset(channel, 0, sizeof(*channel));
	channel->is_open = true;
	channel->generation = generation;
	channel->cgroup = CGROUP_NONE;
	channel->stdin_fd = -1;
	for (int at = 0; at < OUTPUTS; at++) {
		channel->outputs[at].fd = -1;
		channel->outputs[at].credit = OUTPUT_WINDOW_BYTES;
	}
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_stdin(struct channel *channel)
{
	if (channel->has_terminal && channel->stdin_fd >= 0 && channel->stdin_is_watched)
		epoll_ctl(epoll_fd, EPOLL_CTL_DEL, channel->stdin_fd, NULL);
	channel->stdin_is_watched = false;
	channel->stdin_head = channel->stdin_tail = 0;
	close_fd(&channel->stdin_fd);
}

static void set_grace(struct channel *channel, int64_t kill_at_ms)
{
	graces += (kill_at_ms > 0) - (channel->kill_at_ms > 0);
	channel->kill_at_ms = kill_at_ms;
}

/* Frees the channel. What still runs of its command stays in its control group. */
void channel_close(struct channel *channel)
{
	close_stdin(channel);
	for (int at = 0; at < OUTPUTS; at++)
		close_fd(&channel->outputs[at].fd);
	set_grace(channel, 0);
	cgroup_release(channel->cgroup);
	channel->is_open = false;
	channel->pid = 0;
}

static bool watch(const struct channel *channel, enum source source, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events};

	event.data.u64 = (uint64_t)source | (uint64_t)(channel - channels) << 8 | (uint64_t)channel->generation << 32;
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void watch_output(struct channel *channel, struct output_stream *stream, bool is_wanted)
{
	enum source source = stream == &channel->outputs[0] ? SOURCE_STDOUT : SOURCE_STDERR;

	if (stream->fd < 0 || stream->is_watched == is_wanted)
		return;
	if (is_wanted)
		stream->is_watched = watch(channel, source, stream->fd, EPOLLIN);
	else if (epoll_ctl(epoll_fd, EPOLL_CTL_DEL, stream->fd, NULL) == 0)
		stream->is_watched = false;
}

void channel_watch_outputs(struct channel *channel)
{
	for (int at = 0; at < OUTPUTS; at++)
		watch_output(channel, &channel->outputs[at], true);
}

/* How much of the stream may be sent now. */
static size_t sendable(const struct channel *channel, const struct output_stream *stream)
{
	size_t size = output_data_room();

	if (stream->credit <= OUTPUT_FRAME_COST_BYTES)
		return 0;
	if (size > stream->credit - OUTPUT_FRAME_COST_BYTES)
		size = stream->credit - OUTPUT_FRAME_COST_BYTES;
	return channel->has_exited && size > stream->left ? stream->left : size;
}

/* Reads once and sends it. Returns whether there may be more. The caller knows that there is something, or the end. */
static bool send_some(struct channel *channel, struct output_stream *stream, size_t size)
{
	uint8_t type = stream == &channel->outputs[0] ? GUEST_FRAME_STDOUT : GUEST_FRAME_STDERR;
	ssize_t got = read(stream->fd, output_data(), size);

	if (got > 0) {
		last_sender = (int)(channel - channels);
		output_data_sent(type, channel_number(channel), (size_t)got);
		stream->credit -= (uint32_t)got + OUTPUT_FRAME_COST_BYTES;
		if (channel->has_exited)
			stream->left -= (size_t)got;
		return true;
	}
	if (got < 0 && (errno == EINTR || (errno == EAGAIN && !channel->has_exited)))
		return errno == EINTR;
	/*
	 * The end; a terminal says EIO when its last user has closed it. Closing it then would send a hang-up signal to the
	 * command, which may be about to exit with a code of its own.
	 */
	if (channel->has_terminal && !channel->has_exited)
		stream->has_hung_up = true;
	else
		close_fd(&stream->fd);
	return false;
}

/* After the exit: sends what was written until then, as far as the host lets us. */
static void drain(struct channel *channel, struct output_stream *stream)
{
	while (stream->fd >= 0 && stream->left > 0) {
		size_t size = sendable(channel, stream);

		if (size == 0) {
			/* The host gave up on a killed command's output: it gets what its credit allows. */
			if (channel->is_killed && output_data_room() > 0)
				break;
			return;
		}
		send_some(channel, stream, size);
	}
	close_fd(&stream->fd);
}

static void give_stdin_credit(struct channel *channel)
{
	if (channel->stdin_taken < STDIN_CREDIT_STEP_BYTES || !output_has_room())
		return;
	output_begin(GUEST_FRAME_STDIN_CREDIT, channel_number(channel));
	output_number(FIELD_BYTES, channel->stdin_taken);
	output_end();
	channel->stdin_taken = 0;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Does what can be done for the channel now. Called after everything that may have changed it. */
static void pump(struct channel *channel)
{
	for (int at = 0; at < OUTPUTS; at++) {
		struct output_stream *stream = &channel->outputs[at];

		if (channel->has_exited)
			drain(channel, stream);
		else
			watch_output(channel, stream, !stream->has_hung_up && sendable(channel, stream) > 0);
	}
	give_stdin_credit(channel);
	if (!channel->has_exited || channel->outputs[0].fd >= 0 || channel->outputs[1].fd >= 0 || !output_has_room())
		return;
	/* Hung up, and the shell was the first to go: the rest of its command has the rest of the grace. */
	if (channel->kill_at_ms > 0 && cgroup_is_populated(channel->cgroup))
		return;
	set_grace(channel, 0);
	output_begin(GUEST_FRAME_EXIT, channel_number(channel));
	output_number(FIELD_EXIT_CODE, (uint32_t)channel->exit_code);
	output_end();
	channel_close(channel);
}

/*
 * Room in the queue has come back: goes on with everything that waited for it. They get events in the order in which they
 * are watched, so whoever comes after the last that sent is first; else a slow port would be all for the low numbers.
 */
void channel_pump_all(void)
{
	int first = last_sender + 1;

	for (int at = first; at < first + CHANNELS_MAX; at++)
		if (channels[at % CHANNELS_MAX].is_open)
			pump(&channels[at % CHANNELS_MAX]);
}

/* Writes as much as the command takes. Returns how much; everything when it reads no more. */
static uint32_t write_stdin(struct channel *channel, const uint8_t *bytes, uint32_t length)
{
	uint32_t done = 0;

	while (channel->stdin_fd >= 0 && done < length) {
		ssize_t written = write(channel->stdin_fd, bytes + done, length - done);

		if (written >= 0)
			done += (uint32_t)written;
		else if (errno == EAGAIN)
			return done;
		else if (errno != EINTR)
			close_stdin(channel);
	}
	return length;
}

static void end_stdin(struct channel *channel)
{
	const char end = END_OF_TRANSMISSION;

	if (channel->has_terminal && channel->stdin_fd >= 0 && write(channel->stdin_fd, &end, 1) < 0 && errno == EAGAIN)
		return; /* the terminal's input is full of what nobody reads */
	close_stdin(channel);
}

static void flush_stdin(struct channel *channel)
{
	const uint8_t *buffer = stdin_buffers[channel - channels];
	uint32_t waiting = channel->stdin_tail - channel->stdin_head;
	uint32_t done = write_stdin(channel, buffer + channel->stdin_head, waiting);

	channel->stdin_taken += done;
	give_stdin_credit(channel);
	if (done < waiting) {
		channel->stdin_head += done;
		return;
	}
	channel->stdin_head = channel->stdin_tail = 0;
	if (channel->stdin_has_ended)
		end_stdin(channel);
	if (channel->stdin_fd >= 0 && channel->stdin_is_watched) {
		epoll_ctl(epoll_fd, EPOLL_CTL_DEL, channel->stdin_fd, NULL);
		channel->stdin_is_watched = false;
	}
}

/* -EBADMSG when the host sends more than it was given credit for. */
int channel_stdin(struct channel *channel, const uint8_t *bytes, uint32_t length)
{
	uint8_t *buffer = stdin_buffers[channel - channels];
	uint32_t waiting = channel->stdin_tail - channel->stdin_head;
	uint32_t done = 0;

	if (waiting == 0) {
		done = write_stdin(channel, bytes, length);
		channel->stdin_taken += done;
		give_stdin_credit(channel);
	}
	if (done == length)
		return 0;
	if (length - done > STDIN_WINDOW_BYTES - waiting)
		return -EBADMSG;
	if (channel->stdin_head > 0)
		memmove(buffer, buffer + channel->stdin_head, waiting);
	memcpy(buffer + waiting, bytes + done, length - done);
	channel->stdin_head = 0;
	channel->stdin_tail = waiting + length - done;
	if (!channel->stdin_is_watched)
		channel->stdin_is_watched = watch(channel, SOURCE_STDIN, channel->stdin_fd, EPOLLOUT);
	return 0;
}

void channel_stdin_end(struct channel *channel)
{
	channel->stdin_has_ended = true;
	if (channel->stdin_head == channel->stdin_tail)
		end_stdin(channel);
}

int channel_credit(struct channel *channel, uint32_t number, uint32_t bytes)
{
	if (number != STREAM_STDOUT && number != STREAM_STDERR)
		return -EBADMSG;
	struct output_stream *stream = &channel->outputs[number - STREAM_STDOUT];
	if (bytes > OUTPUT_WINDOW_BYTES - stream->credit)
		return -EBADMSG;
	stream->credit += bytes;
	pump(channel);
	return 0;
}

void channel_resize(const struct channel *channel, uint32_t cols, uint32_t rows)
{
	struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};

	if (channel->has_terminal && channel->outputs[0].fd >= 0)
		ioctl(channel->outputs[0].fd, TIOCSWINSZ, &size);
}

/* A process that has been reaped is not signaled: its number may be somebody else's. */
void channel_signal(const struct channel *channel, uint32_t number)
{
	if (channel->pid > 0 && number > 0 && number <= (uint32_t)SIGRTMAX)
		kill(-channel->pid, (int)number);
}

void channel_kill(struct channel *channel)
{
	channel->is_killed = true;
	set_grace(channel, 0);
	cgroup_kill(channel->cgroup);
	channel_signal(channel, SIGKILL);
	pump(channel);
}

/*
 * The terminal is gone: its shell is told, and its death tells the job in the foreground. What is left of the command when
 * the grace is over is killed. One that was stopped is woken, so that it hears of it.
 */
void channel_hang_up(struct channel *channel, uint32_t grace_ms)
{
	if (channel->is_killed)
		return;
	channel->is_killed = true;
	set_grace(channel, now_ms() + (grace_ms < GRACE_MS_MAX ? grace_ms : GRACE_MS_MAX));
	channel_signal(channel, SIGHUP);
	channel_signal(channel, SIGCONT);
	pump(channel);
}

/* How long nothing need be done for those that were hung up: -1 without limit. */
int channel_timeout_ms(void)
{
	int64_t next = INT64_MAX;

	if (graces == 0)
		return -1;
	for (int at = 0; at < CHANNELS_MAX; at++)
		if (channels[at].kill_at_ms > 0 && channels[at].kill_at_ms < next)
			next = channels[at].kill_at_ms;
	next -= now_ms();
	return next > 0 ? (int)next : 0;
}

/* Called after every event: ends those whose grace is over, or of which nothing is left. */
void channel_step(void)
{
	if (graces == 0)
		return;
	int64_t now = now_ms();
	for (int at = 0; at < CHANNELS_MAX; at++) {
		if (channels[at].kill_at_ms > 0 && channels[at].kill_at_ms <= now)
			channel_kill(&channels[at]);
		else if (channels[at].kill_at_ms > 0)
			pump(&channels[at]);
	}
}

void channel_event(uint64_t key)
{
	enum source source = (enum source)(key & 0xff);
	struct channel *channel = &channels[key >> 8 & (CHANNELS_MAX - 1)];

	if (!channel->is_open || channel->generation != (uint32_t)(key >> 32))
		return;
	if (source == SOURCE_STDIN) {
		flush_stdin(channel);
		return;
	}
	struct output_stream *stream = &channel->outputs[source - SOURCE_STDOUT];
	size_t size = sendable(channel, stream);
	if (stream->fd >= 0 && size > 0)
		send_some(channel, stream, size);
	pump(channel);
}

/* What the command has written and the host has not got. All of a terminal's: its last bytes may not be counted yet. */
static size_t left_in(const struct channel *channel, const struct output_stream *stream)
{
	int size = 0;

	if (stream->fd < 0)
		return 0;
	if (channel->has_terminal)
		return SIZE_MAX;
	return ioctl(stream->fd, FIONREAD, &size) == 0 && size > 0 ? (size_t)size : 0;
}

/* Whether the process was a channel's. */
bool channel_exited(pid_t pid, int exit_code)
{
	for (int at = 0; at < CHANNELS_MAX; at++) {
		struct channel *channel = &channels[at];

		if (!channel->is_open || channel->pid != pid)
			continue;
		channel->pid = 0;
		channel->has_exited = true;
		channel->exit_code = exit_code;
		close_stdin(channel);
		for (int output = 0; output < OUTPUTS; output++) {
			struct output_stream *stream = &channel->outputs[output];

			stream->left = left_in(channel, stream);
			if (stream->left > 0) /* else it is closed, which ends the watch too */
				watch_output(channel, stream, false);
		}
		pump(channel);
		return true;
	}
	return false;
}

/* Ends what belonged to a host that is gone. */
void channel_end_all(void)
{
	for (int at = 0; at < CHANNELS_MAX; at++)
		if (channels[at].is_open) {
			cgroup_kill(channels[at].cgroup);
			channel_signal(&channels[at], SIGKILL);
			channel_close(&channels[at]);
		}
}

void channel_signal_all(uint32_t number)
{
	for (int at = 0; at < CHANNELS_MAX; at++)
		if (channels[at].is_open)
			channel_signal(&channels[at], number);
}

/* Interactive shells ignore a request to terminate, but not that their terminal is gone. */
void channel_hang_up_terminals(void)
{
	for (int at = 0; at < CHANNELS_MAX; at++)
		if (channels[at].is_open && channels[at].has_terminal)
			channel_signal(&channels[at], SIGHUP);
}
