/*
 * The table of commands and connections: moves their input and output, and ends a channel when its command
 * has ended.
 *
 * Owns the channels and their outputs; input.c owns what a command has not read yet, resend.c sends what is
 * kept.
 *
 * Always:
 * - A command's output is read only while the host has given credit for it and the queue to the host has
 *   room; otherwise its pipe fills and it blocks. So a host that does not read one command blocks only that
 *   one.
 * - A channel ends when its process has exited and everything written until then is sent, even if its
 *   children keep the pipe open and continue to write.
 * - A resumable command whose host was lost waits for the next host, at most RESUME_MS from its hello: it
 *   continues to run, its output is read again after that host has said from where on, and its exit is kept
 *   until a host releases it.
 * - A connection is a channel without a process, whose socket is its input and its first output. It ends with
 *   the end of the socket's input.
 * - Pipes are watched level-triggered, and removed from the set while they may not be read, so an idle guest
 *   does nothing.
 */
#include "channel.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cgroup.h"
#include "clock.h"
#include "drain.h"
#include "frame.h"
#include "input.h"
#include "output.h"
#include "resend.h"
#include "watch.h"

#define GRACE_MS_MAX 60000
/* While the queue to the host has no room for the end of a command. */
#define ABANDON_AGAIN_MS 1000

static struct channel channels[CHANNELS_ALL];
static int resume_ms = RESUME_MS;
static int last_sender;
static int timers; /* channels with kill_at_ms, and those with resume_until_ms */

const struct channel_kind command_kind = {
	.outputs = OUTPUTS,
	.window_bytes = OUTPUT_WINDOW_BYTES,
	.keep = kept_open_command,
};

void channel_init(void)
{
	for (int at = 0; at < CHANNELS_ALL; at++)
		channels[at].number = (uint32_t)at + 1;
	kept_init();
}

/* Tests use a shorter time. */
void channel_use_resume_ms(int ms)
{
	resume_ms = ms;
}

/* NULL for an invalid number; the channel may be closed. */
struct channel *channel_get(uint32_t number)
{
	return number >= 1 && number <= CHANNELS_ALL ? &channels[number - 1] : NULL;
}

/* Resets the channel; the caller sets the process and its descriptors. */
void channel_open(struct channel *channel, const struct channel_kind *kind)
{
	uint32_t number = channel->number;
	uint32_t generation = channel->generation + 1;

	memset(channel, 0, sizeof(*channel));
	channel->kind = kind;
	channel->is_open = true;
	channel->number = number;
	channel->generation = generation;
	channel->cgroup = CGROUP_NONE;
	channel->stdin_fd = -1;
	for (int at = 0; at < OUTPUTS; at++) {
		channel->outputs[at].fd = -1;
		channel->outputs[at].credit = kind->window_bytes;
	}
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* `timer`: one of the channel's times; 0 ends it. */
static void set_timer(int64_t *timer, int64_t at_ms)
{
	timers += (at_ms > 0) - (*timer > 0);
	*timer = at_ms;
}

/* Frees what a running command needs. Remaining processes of it stay in its control group. */
static void end_command(struct channel *channel)
{
	input_close(channel);
	for (int at = 0; at < OUTPUTS; at++)
		close_fd(&channel->outputs[at].fd);
	set_timer(&channel->kill_at_ms, 0);
	cgroup_release(channel->cgroup);
	channel->cgroup = CGROUP_NONE;
	channel->pid = 0;
}

void channel_close(struct channel *channel)
{
	end_command(channel);
	set_timer(&channel->resume_until_ms, 0);
	for (int at = 0; at < OUTPUTS; at++)
		kept_close(&channel->outputs[at].kept);
	channel->is_open = false;
}

void channel_make_resumable(struct channel *channel, const uint8_t *key)
{
	channel->is_resumable = true;
	memcpy(channel->resume_key, key, sizeof(channel->resume_key));
	for (int at = 0; at < channel->kind->outputs; at++)
		channel->kind->keep(&channel->outputs[at].kept);
}

static void watch_output(struct channel *channel, struct output_stream *stream, bool is_wanted)
{
	enum source source = stream == &channel->outputs[0] ? SOURCE_STDOUT : SOURCE_STDERR;

	if (stream->fd < 0 || stream->is_watched == is_wanted)
		return;
	if (is_wanted)
		stream->is_watched = watch_add(channel, source, stream->fd, EPOLLIN);
	else if (watch_remove(stream->fd))
		stream->is_watched = false;
}

void channel_watch_outputs(struct channel *channel)
{
	for (int at = 0; at < OUTPUTS; at++)
		watch_output(channel, &channel->outputs[at], true);
}

/* How many new bytes of the stream may be sent now. */
static size_t sendable(const struct channel *channel, const struct output_stream *stream)
{
	size_t size = resend_left(stream) > 0 ? 0 : resend_permitted(stream);

	return channel->has_exited && size > stream->left ? stream->left : size;
}

/* Closes the socket. What was read from it is still sent. */
static void end_connection(struct channel *channel)
{
	channel->is_connecting = false;
	channel->has_exited = true;
	watch_output(channel, &channel->outputs[0], false);
	input_close(channel);
	close_fd(&channel->outputs[0].fd);
}

/*
 * Reads once and sends the data. The caller knows that data or the end is available. Returns whether there
 * may be more.
 */
static bool send_some(struct channel *channel, struct output_stream *stream, size_t size)
{
	ssize_t got = read(stream->fd, output_data(), size);

	if (got > 0) {
		last_sender = (int)(channel - channels);
		resend_send_new(channel, stream, (size_t)got);
		if (channel->has_exited)
			stream->left -= (size_t)got;
		return true;
	}
	if (got < 0 && (errno == EINTR || (errno == EAGAIN && !channel->has_exited)))
		return errno == EINTR;
	if (channel_is_connection(channel)) {
		if (got < 0)
			channel->exit_code = CONNECTION_BROKEN;
		end_connection(channel);
		return false;
	}
	/*
	 * The end of the output. A terminal reports EIO when its last user has closed it. Closing it now would send
	 * SIGHUP to the command, which may be about to exit with its own code.
	 */
	if (channel->has_terminal && !channel->has_exited)
		stream->has_hung_up = true;
	else
		close_fd(&stream->fd);
	return false;
}

/* After the exit: sends what was written until then, as far as the host gives credit. */
static void drain(struct channel *channel, struct output_stream *stream)
{
	while (stream->fd >= 0 && stream->left > 0) {
		size_t size = sendable(channel, stream);

		if (size == 0) {
			/* The host does not want a killed command's output: it gets only what its credit allows. */
			if (channel->is_killed && output_data_room() > 0)
				break;
			return;
		}
		send_some(channel, stream, size);
	}
	close_fd(&stream->fd);
}

static void report_exit(struct channel *channel, int exit_code)
{
	channel->has_reported_exit = true;
	output_begin(GUEST_FRAME_EXIT, channel->number);
	output_u32(FIELD_EXIT_CODE, (uint32_t)exit_code);
	output_end();
}

/* Does everything that is possible for the channel now. Called after every change to it. */
static void pump(struct channel *channel)
{
	if (channel->is_connecting) {
		if (!channel->has_connect_ended || !output_has_room())
			return;
		if (channel->kind->report(channel) != 0) {
			channel_close(channel);
			return;
		}
	}
	for (int at = 0; at < OUTPUTS; at++) {
		struct output_stream *stream = &channel->outputs[at];

		resend_kept(channel, stream);
		if (channel->has_exited)
			drain(channel, stream);
		else
			watch_output(channel, stream, !stream->has_hung_up && sendable(channel, stream) > 0);
	}
	input_give_credit(channel);
	if (!channel->has_exited || channel->outputs[0].fd >= 0 || channel->outputs[1].fd >= 0 || !output_has_room())
		return;
	if (channel->has_reported_exit || channel->resume_until_ms > 0 || resend_waits(channel))
		return;
	/* Hung up, and the shell exited first: the rest of its command gets the rest of the grace. */
	if (channel->kill_at_ms > 0 && cgroup_is_populated(channel->cgroup))
		return;
	report_exit(channel, channel->exit_code);
	if (channel->is_resumable)
		end_command(channel);
	else
		channel_close(channel);
}

/*
 * Called when the queue has room again: continues everything that waited for it. Round-robin from the channel
 * after the last sender, so that low-numbered channels cannot starve the rest on a slow port.
 */
void channel_pump_all(void)
{
	int first = last_sender + 1;

	for (int at = first; at < first + CHANNELS_ALL; at++)
		if (channels[at % CHANNELS_ALL].is_open)
			pump(&channels[at % CHANNELS_ALL]);
}

int channel_credit(struct channel *channel, uint32_t number, uint32_t bytes)
{
	if (number != STREAM_STDOUT && number != STREAM_STDERR)
		return -EBADMSG;
	struct output_stream *stream = &channel->outputs[number - STREAM_STDOUT];
	if (bytes > channel->kind->window_bytes - stream->credit)
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

/* A process that was reaped is not signaled: its number may belong to another process. */
void channel_signal(const struct channel *channel, uint32_t number)
{
	if (channel->pid > 0 && number > 0 && number <= (uint32_t)SIGRTMAX)
		kill(-channel->pid, (int)number);
}

static void kill_processes(const struct channel *channel)
{
	cgroup_kill(channel->cgroup);
	channel_signal(channel, SIGKILL);
}

void channel_kill(struct channel *channel)
{
	channel->is_killed = true;
	set_timer(&channel->kill_at_ms, 0);
	kill_processes(channel);
	if (channel_is_connection(channel) && !channel->has_exited) {
		channel->exit_code = CONNECTION_BROKEN;
		end_connection(channel);
	}
	pump(channel);
}

/*
 * The terminal is closed: the shell gets SIGHUP, and its death ends the foreground job. What remains of the
 * command when the grace is over is killed. SIGCONT wakes a stopped command, so that it receives the SIGHUP.
 */
void channel_hang_up(struct channel *channel, uint32_t grace_ms)
{
	if (channel_is_connection(channel))
		channel_kill(channel);
	if (channel->is_killed)
		return;
	channel->is_killed = true;
	set_timer(&channel->kill_at_ms, clock_ms() + (grace_ms < GRACE_MS_MAX ? grace_ms : GRACE_MS_MAX));
	channel_signal(channel, SIGHUP);
	channel_signal(channel, SIGCONT);
	pump(channel);
}

/* Milliseconds until channel_step() has something to do: -1 without limit. */
int channel_timeout_ms(void)
{
	int64_t next = INT64_MAX;

	if (timers == 0)
		return -1;
	for (int at = 0; at < CHANNELS_ALL; at++) {
		if (channels[at].kill_at_ms > 0 && channels[at].kill_at_ms < next)
			next = channels[at].kill_at_ms;
		if (channels[at].resume_until_ms > 0 && channels[at].resume_until_ms < next)
			next = channels[at].resume_until_ms;
	}
	next -= clock_ms();
	return next > 0 ? (int)next : 0;
}

/* No host has resumed the command: ends it, and tells the host that its channel is free. */
static void abandon(struct channel *channel, int64_t now)
{
	if (!output_has_room()) {
		channel->resume_until_ms = now + ABANDON_AGAIN_MS;
		return;
	}
	kill_processes(channel);
	report_exit(channel, 128 + SIGKILL);
	channel_close(channel);
}

/*
 * Called after every event: kills commands whose grace is over, and ends those without remaining processes
 * and those that no host has resumed.
 */
void channel_step(void)
{
	if (timers == 0)
		return;
	int64_t now = clock_ms();
	for (int at = 0; at < CHANNELS_ALL; at++) {
		if (channels[at].resume_until_ms > 0 && channels[at].resume_until_ms <= now)
			abandon(&channels[at], now);
		if (channels[at].kill_at_ms > 0 && channels[at].kill_at_ms <= now)
			channel_kill(&channels[at]);
		else if (channels[at].kill_at_ms > 0)
			pump(&channels[at]);
	}
}

void channel_event(uint64_t key)
{
	enum source source = (enum source)(key & 0xff);
	struct channel *channel = &channels[key >> 8 & 0xffffff];

	if (!channel->is_open || channel->generation != (uint32_t)(key >> 32))
		return;
	if (channel->is_connecting) {
		if (watch_remove(channel->stdin_fd))
			channel->stdin_is_watched = false;
		channel->has_connect_ended = true;
		pump(channel);
		return;
	}
	if (source == SOURCE_STDIN) {
		input_flush(channel);
		return;
	}
	struct output_stream *stream = &channel->outputs[source - SOURCE_STDOUT];
	size_t size = sendable(channel, stream);
	if (stream->fd >= 0 && size > 0)
		send_some(channel, stream, size);
	pump(channel);
}

/*
 * Bytes that the command has written and that were not sent. For a terminal that is everything, because
 * FIONREAD may miss its last bytes.
 */
static size_t unsent_in(const struct channel *channel, const struct output_stream *stream)
{
	int size = 0;

	if (stream->fd < 0)
		return 0;
	if (channel->has_terminal)
		return SIZE_MAX;
	return ioctl(stream->fd, FIONREAD, &size) == 0 && size > 0 ? (size_t)size : 0;
}

/* Returns whether the process belonged to a channel. */
bool channel_exited(pid_t pid, int exit_code)
{
	for (int at = 0; at < CHANNELS_MAX; at++) {
		struct channel *channel = &channels[at];

		if (!channel->is_open || channel->pid != pid)
			continue;
		channel->pid = 0;
		channel->has_exited = true;
		channel->exit_code = exit_code;
		input_close(channel);
		for (int output = 0; output < OUTPUTS; output++) {
			struct output_stream *stream = &channel->outputs[output];

			stream->left = unsent_in(channel, stream);
			if (stream->left > 0) /* otherwise it is closed, which also ends the watch */
				watch_output(channel, stream, false);
		}
		pump(channel);
		return true;
	}
	return false;
}

/* Ends the commands of a host that has disconnected. */
void channel_end_all(void)
{
	for (int at = 0; at < CHANNELS_ALL; at++)
		if (channels[at].is_open) {
			kill_processes(&channels[at]);
			channel_close(&channels[at]);
		}
}

/*
 * A host was lost, and the next one keeps commands, and perhaps connections: resumable ones wait for it, the
 * others end. A connection that was not established yet has no answer that could be continued.
 */
void channel_keep_all(bool keeps_connections)
{
	for (int at = 0; at < CHANNELS_ALL; at++) {
		struct channel *channel = &channels[at];

		if (!channel->is_open)
			continue;
		bool is_refused = channel_is_connection(channel) && (!keeps_connections || channel->is_connecting);
		if (!channel->is_resumable || is_refused) {
			kill_processes(channel);
			channel_close(channel);
			continue;
		}
		set_timer(&channel->resume_until_ms, clock_ms() + resume_ms);
		for (int output = 0; output < OUTPUTS; output++)
			channel->outputs[output].credit = 0;
		pump(channel); /* ends the watch of its outputs */
	}
}

/*
 * The guest is a copy, and its callers are those of the machine that was copied. Their commands run on, and
 * what they write is discarded; connections and the agent's own workers end.
 */
void channel_let_go_all(void)
{
	for (int at = 0; at < CHANNELS_ALL; at++) {
		struct channel *channel = &channels[at];

		if (!channel->is_open)
			continue;
		if (channel->is_worker || channel_is_connection(channel) || channel->kill_at_ms > 0)
			kill_processes(channel);
		else
			for (int output = 0; output < OUTPUTS; output++) {
				struct output_stream *stream = &channel->outputs[output];

				watch_output(channel, stream, false);
				if (stream->fd >= 0)
					drain_add(stream->fd);
				stream->fd = -1;
			}
		channel_close(channel);
	}
}

/*
 * Writes KEPT_COMMAND_BYTES for each one that waits for a host: its channel and its key. Returns how many
 * bytes.
 */
size_t channel_list_kept(uint8_t *list, bool of_connections)
{
	size_t size = 0;

	for (int at = of_connections ? CHANNELS_MAX : 0; at < (of_connections ? CHANNELS_ALL : CHANNELS_MAX); at++) {
		if (!channels[at].is_open || channels[at].resume_until_ms == 0)
			continue;
		write_u32(list + size, channels[at].number);
		memcpy(list + size + 4, channels[at].resume_key, RESUME_KEY_BYTES);
		size += KEPT_COMMAND_BYTES;
	}
	return size;
}

/*
 * Continues a command for a new host, which has its output before the offsets. If the rest is no longer kept,
 * the command is ended. Returns -EBADMSG for a command that does not wait for a host.
 */
int channel_resume(struct channel *channel, uint64_t stdout_offset, uint64_t stderr_offset)
{
	const uint64_t offsets[OUTPUTS] = {stdout_offset, stderr_offset};

	if (channel->resume_until_ms == 0)
		return -EBADMSG;
	for (int at = 0; at < channel->kind->outputs; at++) {
		if (kept_check(&channel->outputs[at].kept, offsets[at]) == 0)
			continue;
		kill_processes(channel);
		channel_close(channel);
		output_failed(channel->number, 0, "the guest no longer has the output that was not received");
		return 0;
	}
	set_timer(&channel->resume_until_ms, 0);
	channel->has_reported_exit = false;
	channel->stdin_consumed = 0;
	for (int at = 0; at < OUTPUTS; at++)
		resend_begin(channel, &channel->outputs[at], offsets[at]);
	output_begin(GUEST_FRAME_RESUMED, channel->number);
	output_u64(FIELD_STDIN_OFFSET, channel->stdin_total);
	output_u32(FIELD_BYTES, STDIN_WINDOW_BYTES - (channel->stdin_tail - channel->stdin_head));
	output_end();
	pump(channel);
	return 0;
}

/* The host has delivered everything of a command that has ended. */
void channel_release(struct channel *channel)
{
	if (channel->has_reported_exit)
		channel_close(channel);
}

void channel_signal_all(uint32_t number)
{
	for (int at = 0; at < CHANNELS_MAX; at++)
		if (channels[at].is_open)
			channel_signal(&channels[at], number);
}

/* Interactive shells ignore SIGTERM, but not SIGHUP. */
void channel_hang_up_terminals(void)
{
	for (int at = 0; at < CHANNELS_MAX; at++)
		if (channels[at].is_open && channels[at].has_terminal)
			channel_signal(&channels[at], SIGHUP);
}
