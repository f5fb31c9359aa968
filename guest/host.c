/*
 * The host's requests: reads frames from the port and dispatches them.
 *
 * Owns the input buffer, the buffer for messages split into several frames, and the list of running workers.
 *
 * Always:
 * - Nothing is done before a complete frame with its end byte has arrived, and nothing is read while the
 *   queue to the host has no room for the answers.
 * - After invalid bytes everything except a hello is ignored. A hello always works: it ends the commands of
 *   the previous host, except those that it wants to resume, and discards the queued output. The guest need
 *   not have noticed the disconnect.
 */
#include "host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "channel.h"
#include "connection.h"
#include "exec.h"
#include "file.h"
#include "frame.h"
#include "freeze.h"
#include "input.h"
#include "killed.h"
#include "log.h"
#include "machine.h"
#include "output.h"
#include "shutdown.h"
#include "timer.h"
#include "warm.h"
#include "workload.h"

#define INPUT_BYTES_MAX (2 * FRAME_PAYLOAD_BYTES_MAX)
#define WORKERS_MAX 16
#define HELLO_MAGIC_BYTES (sizeof(HELLO_MAGIC) - 1)

/* A child that syncs or warms up, because that may take too long for the event loop. */
struct worker {
	pid_t pid; /* 0: free */
	uint32_t request;
	bool is_awaited; /* the host that sent the request is still connected */
};

static int port_fd;
static uint8_t input[INPUT_BYTES_MAX];
static size_t input_size;
static bool is_lost = true; /* ignores everything except a hello */

static _Alignas(4096) uint8_t message[MESSAGE_BYTES_MAX];
static size_t message_size; /* bytes of the open message */
static uint8_t message_type;
static uint32_t message_channel;
static bool message_is_open;

static struct worker workers[WORKERS_MAX];

void host_init(int port)
{
	port_fd = port;
}

static void answer_hello(const uint8_t *nonce)
{
	static uint8_t kept[CONNECTIONS_MAX * KEPT_COMMAND_BYTES];
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	/* The queue is empty. */
	output_begin_large(GUEST_FRAME_HELLO_ANSWER, 0, 2 * sizeof(kept));
	output_bytes(HELLO_MAGIC, HELLO_MAGIC_BYTES);
	output_bytes(nonce, HELLO_NONCE_BYTES);
	output_u32(FIELD_PROTOCOL, GUEST_PROTOCOL);
	output_text(FIELD_AGENT_VERSION, AGENT_VERSION);
	output_u32(FIELD_IS_CONFIGURED, machine.is_configured);
	output_u64(FIELD_UPTIME_MS, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
	output_u32(FIELD_KEEPS_COMMANDS, 1);
	output_field(FIELD_KEPT_COMMANDS, kept, channel_list_kept(kept, false));
	output_u32(FIELD_CONNECTIONS_MAX, connections_max());
	output_field(FIELD_KEPT_CONNECTIONS, kept, channel_list_kept(kept, true));
	if (timer_khz() != TIMER_UNKNOWN)
		output_u64(FIELD_TIMER_KHZ, (uint64_t)timer_khz());
	output_end();
}

static int find_u32(struct fields fields, uint8_t tag, uint32_t *number)
{
	struct field field;
	int got;

	while ((got = fields_next(&fields, &field)) > 0)
		if (field.tag == tag)
			return field_u32(&field, number);
	return -EBADMSG;
}

static int find_u64(struct fields fields, uint8_t tag, uint64_t *number)
{
	struct field field;
	int got;

	while ((got = fields_next(&fields, &field)) > 0)
		if (field.tag == tag)
			return field_u64(&field, number);
	return -EBADMSG;
}

static int on_hello(const struct frame *frame)
{
	struct fields fields = {.at = frame->payload + HELLO_MAGIC_BYTES + HELLO_NONCE_BYTES, .end = frame->payload + frame->length};
	uint32_t keeps_commands = 0, keeps_connections = 0, is_clone = 0;

	if (frame->length < HELLO_MAGIC_BYTES + HELLO_NONCE_BYTES ||
	    memcmp(frame->payload, HELLO_MAGIC, HELLO_MAGIC_BYTES) != 0)
		return -EBADMSG;
	is_lost = false;
	message_is_open = false;
	if (find_u32(fields, FIELD_IS_CLONE, &is_clone) == 0 && is_clone != 0) {
		freeze_hold();
		channel_let_go_all();
	} else {
		freeze_end();
	}
	/* A host that is older than a field sends none. */
	if (find_u32(fields, FIELD_KEEPS_COMMANDS, &keeps_commands) == 0 && keeps_commands != 0)
		channel_keep_all(find_u32(fields, FIELD_KEEPS_CONNECTIONS, &keeps_connections) == 0 && keeps_connections != 0);
	else
		channel_end_all();
	workload_detach();
	for (int at = 0; at < WORKERS_MAX; at++)
		workers[at].is_awaited = false;
	output_discard();
	answer_hello(frame->payload + HELLO_MAGIC_BYTES);
	killed_attach();
	return 0;
}

static void configure(uint32_t request, struct fields fields)
{
	char text[GUEST_MESSAGE_BYTES_MAX];
	const char *step;
	int error = machine_configure(fields, &step);

	if (error == 0) {
		output_done(request);
		return;
	}
	snprintf(text, sizeof(text), "cannot configure the machine: failed to %s: %s", step, strerror(-error));
	output_failed(0, request, text);
}

static struct worker *free_worker(void)
{
	for (int at = 0; at < WORKERS_MAX; at++)
		if (workers[at].pid == 0)
			return &workers[at];
	return NULL;
}

/* Answers the request when the process has ended. */
static void wait_for(struct worker *worker, pid_t pid, uint32_t request)
{
	if (pid < 0)
		output_failed(0, request, strerror(errno));
	else
		*worker = (struct worker){.pid = pid, .request = request, .is_awaited = true};
}

static pid_t sync_file_systems(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		sync();
		_exit(0);
	}
	return pid;
}

static void work(uint8_t type, uint32_t request, struct fields fields)
{
	struct worker *worker = free_worker();

	if (worker == NULL)
		output_failed(0, request, "too many concurrent requests");
	else if (type == HOST_FRAME_SYNC_FILE_SYSTEMS)
		wait_for(worker, sync_file_systems(), request);
	else
		wait_for(worker, warm_up(fields), request);
}

/* Returns whether the process was a worker. */
bool host_worker_exited(pid_t pid, int exit_code)
{
	for (int at = 0; at < WORKERS_MAX; at++) {
		if (workers[at].pid != pid)
			continue;
		workers[at].pid = 0;
		if (workers[at].is_awaited && exit_code == 0)
			output_done(workers[at].request);
		else if (workers[at].is_awaited)
			output_failed(0, workers[at].request, "the worker process failed");
		return true;
	}
	return false;
}

/* Starts the machine's workload unless it was started before, and sends its output from then on. */
static int on_workload(uint32_t request, struct fields fields)
{
	uint64_t offset;

	if (find_u64(fields, FIELD_OFFSET, &offset) != 0)
		return -EBADMSG;
	if (!machine.is_configured || shutdown_has_begun()) {
		output_failed(0, request, machine.is_configured ? "the machine is shutting down" : "the guest is not configured yet");
		return 0;
	}
	int error = workload_start(fields);
	if (error == -EBADMSG)
		return error;
	if (error != 0) {
		output_failed(0, request, strerror(-error));
		return 0;
	}
	output_done(request);
	workload_attach(offset);
	return 0;
}

static int on_workload_taken(struct fields fields)
{
	uint64_t offset;
	uint32_t bytes;

	if (find_u64(fields, FIELD_OFFSET, &offset) != 0 || find_u32(fields, FIELD_BYTES, &bytes) != 0)
		return -EBADMSG;
	return workload_acknowledge(offset, bytes);
}

static void freeze(uint32_t request)
{
	char text[GUEST_MESSAGE_BYTES_MAX];
	int error = machine.is_configured && !shutdown_has_begun() ? freeze_begin(machine.is_init) : -EBUSY;

	if (error == 0) {
		output_done(request);
		return;
	}
	snprintf(text, sizeof(text), "cannot stop the machine's programs: %s", strerror(-error));
	output_failed(0, request, text);
}

static void thaw(uint32_t request)
{
	if (freeze_end())
		output_done(request);
	else
		output_failed(0, request, "the machine's programs run already");
}

static int on_request(uint8_t type, struct fields fields)
{
	uint32_t request;

	if (find_u32(fields, FIELD_REQUEST, &request) != 0)
		return -EBADMSG;
	switch (type) {
	case HOST_FRAME_CONFIGURE:
		configure(request, fields);
		return 0;
	case HOST_FRAME_SYNC_FILE_SYSTEMS:
	case HOST_FRAME_WARM_UP:
		work(type, request, fields);
		return 0;
	case HOST_FRAME_WORKLOAD:
		return on_workload(request, fields);
	case HOST_FRAME_PING:
		output_done(request);
		return 0;
	case HOST_FRAME_FREEZE:
		freeze(request);
		return 0;
	case HOST_FRAME_THAW:
		thaw(request);
		return 0;
	case HOST_FRAME_SHUT_DOWN:
		freeze_end();
		shutdown_begin();
		output_done(request);
		return 0;
	default:
		return -EBADMSG;
	}
}

static int on_exec(uint8_t type, struct channel *channel, struct fields fields)
{
	if (channel->is_open || channel_is_connection(channel) != (type == HOST_FRAME_CONNECT))
		return -EBADMSG;
	if (shutdown_has_begun() || freeze_is_on()) {
		output_failed(channel->number, 0, freeze_is_on() ? "the machine's programs are stopped" : "the machine is shutting down");
		return 0;
	}
	if (type == HOST_FRAME_CONNECT)
		return connection_request(channel, fields);
	return type == HOST_FRAME_EXEC ? exec_request(channel, fields) : file_request(channel, fields);
}

/* Frames for a channel that has ended are late, but valid. */
static int on_channel(uint8_t type, struct channel *channel, const uint8_t *payload, uint32_t length)
{
	struct fields fields = {.at = payload, .end = payload + length};
	uint32_t first = 0, second = 0;
	uint64_t stdout_offset = 0, stderr_offset = 0;

	if (type == HOST_FRAME_EXEC || type == HOST_FRAME_FILE || type == HOST_FRAME_CONNECT)
		return on_exec(type, channel, fields);
	if (!channel->is_open)
		return 0;
	switch (type) {
	case HOST_FRAME_STDIN:
		return input_write(channel, payload, length);
	case HOST_FRAME_STDIN_END:
		input_end(channel);
		return 0;
	case HOST_FRAME_KILL:
		if (find_u32(fields, FIELD_GRACE_MS, &first) == 0)
			channel_hang_up(channel, first);
		else
			channel_kill(channel);
		return 0;
	case HOST_FRAME_CREDIT:
		if (find_u32(fields, FIELD_STREAM, &first) != 0 || find_u32(fields, FIELD_BYTES, &second) != 0)
			return -EBADMSG;
		return channel_credit(channel, first, second);
	case HOST_FRAME_RESIZE:
		if (find_u32(fields, FIELD_COLS, &first) != 0 || find_u32(fields, FIELD_ROWS, &second) != 0)
			return -EBADMSG;
		channel_resize(channel, first, second);
		return 0;
	case HOST_FRAME_SIGNAL:
		if (find_u32(fields, FIELD_SIGNAL, &first) != 0)
			return -EBADMSG;
		channel_signal(channel, first);
		return 0;
	case HOST_FRAME_RESUME:
		if (find_u64(fields, FIELD_STDOUT_OFFSET, &stdout_offset) != 0 ||
		    find_u64(fields, FIELD_STDERR_OFFSET, &stderr_offset) != 0)
			return -EBADMSG;
		return channel_resume(channel, stdout_offset, stderr_offset);
	case HOST_FRAME_RELEASE:
		channel_release(channel);
		return 0;
	default:
		return -EBADMSG;
	}
}

static int dispatch(uint8_t type, uint32_t number, const uint8_t *payload, uint32_t length)
{
	struct fields fields = {.at = payload, .end = payload + length};
	struct channel *channel = channel_get(number);

	if (number == 0 && type == HOST_FRAME_KILLED_READ) {
		killed_read_by_host();
		return 0;
	}
	if (number == 0)
		return type == HOST_FRAME_WORKLOAD_TAKEN ? on_workload_taken(fields) : on_request(type, fields);
	return channel == NULL ? -EBADMSG : on_channel(type, channel, payload, length);
}

/* Appends the frame to the open message, and dispatches the message after its last frame. */
static int on_part(const struct frame *frame)
{
	if (frame->type != HOST_FRAME_EXEC && frame->type != HOST_FRAME_CONFIGURE && frame->type != HOST_FRAME_WORKLOAD)
		return -EBADMSG;
	if (!message_is_open) {
		message_is_open = true;
		message_size = 0;
		message_type = frame->type;
		message_channel = frame->channel;
	}
	if (frame->type != message_type || frame->channel != message_channel ||
	    frame->length > sizeof(message) - message_size)
		return -EBADMSG;
	memcpy(message + message_size, frame->payload, frame->length);
	message_size += frame->length;
	if (frame->flags & FRAME_FLAG_MORE)
		return 0;
	message_is_open = false;
	int error = dispatch(message_type, message_channel, message, (uint32_t)message_size);
	madvise(message, sizeof(message), MADV_DONTNEED);
	return error;
}

static int on_frame(const struct frame *frame)
{
	if (frame->type == HOST_FRAME_HELLO)
		return on_hello(frame);
	if (is_lost)
		return 0;
	if (message_is_open || frame->flags & FRAME_FLAG_MORE)
		return on_part(frame);
	return dispatch(frame->type, frame->channel, frame->payload, frame->length);
}

/* After invalid bytes: from here on only a hello is accepted. */
static size_t lose(size_t at)
{
	if (!is_lost)
		log_line("received invalid bytes from the host; waiting for a hello", NULL, 0);
	is_lost = true;
	message_is_open = false;
	return at + 1 + frame_find_hello(input + at + 1, input_size - at - 1);
}

/* Processes the complete frames in the input. */
static void process_frames(void)
{
	size_t at = 0;

	while (at < input_size && output_has_room()) {
		struct frame frame;
		ssize_t size = frame_next(input + at, input_size - at, &frame);

		if (size == 0)
			break;
		if (size < 0 || (frame.type != 0 && on_frame(&frame) != 0))
			at = lose(at);
		else
			at += (size_t)size;
	}
	/* A large frame arrives in many reads, so most of the time nothing is moved. */
	if (at > 0)
		memmove(input, input + at, input_size - at);
	input_size -= at;
}

/*
 * Processes everything the host has sent, while there is room for answers. Returns 0 when there is no more
 * now, 1 when the queue to the host must empty first, a negative errno when the port has ended.
 */
int host_read(void)
{
	for (;;) {
		process_frames();
		if (!output_has_room())
			return 1;
		ssize_t got = read(port_fd, input + input_size, sizeof(input) - input_size);
		if (got > 0)
			input_size += (size_t)got;
		else if (got == 0)
			return machine.is_init ? 0 : -EPIPE; /* for a guest's port this means that no host is connected */
		else if (errno != EINTR)
			return errno == EAGAIN ? 0 : -errno;
	}
}
