/*
 * The machine's workload: the command of its image, or of its owner, that runs from the machine's start on.
 *
 * Owns its process, the pipe that is its stdout and stderr, and a ring buffer with its latest output.
 *
 * Always:
 * - It is started at most once in the life of the guest, and nothing that the host does or omits ends it.
 * - Each byte of its output has an offset. The ring keeps output until the host acknowledges that it is
 *   stored, so a reconnecting host gets everything from where the previous one had stopped.
 * - The workload blocks while the ring is full. But when the host acknowledges nothing for STALLED_MS, the
 *   oldest bytes are dropped for as long as that lasts: a service must not hang because its log is not read.
 *   The host recognizes the gap by the next offset.
 */
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cgroup.h"
#include "channel.h"
#include "clock.h"
#include "exec.h"
#include "output.h"

#define STALLED_MS 2000
#define EXIT_CODE_NOT_RUN 255
/* Data per frame besides its fields: small enough that the output of commands is sent in between. */
#define PIECE_BYTES_MAX (32 * 1024)
#define PIECE_FIELDS_BYTES (2 * FIELD_HEADER_BYTES + 8)

static int epoll_fd;
static bool has_started, has_exited;
static pid_t workload_pid; /* 0: not running */
static int workload_cgroup = CGROUP_NONE;
static int exit_code;
static uint64_t exit_offset; /* after its exit: the end of the output written before */

static int pipe_fd = -1; /* stays open while any of its descendants holds the other end */
static bool is_watched;

static uint8_t ring[WORKLOAD_WINDOW_BYTES];
static uint64_t kept; /* offset of the oldest byte in the ring, which contains [kept, end) */
static uint64_t sent; /* offset of the next byte to send */
static uint64_t end;

static bool is_attached; /* a host receives the output */
static bool is_exit_reported;
static uint32_t credit;	 /* bytes that may be sent without acknowledgement */
static bool is_dropping;
static int64_t full_since_ms; /* 0: the ring is not full */


void workload_init(int epoll)
{
	epoll_fd = epoll;
}

static void keep(const void *bytes, size_t length)
{
	for (size_t at = 0; at < length; at++)
		ring[(end + at) % sizeof(ring)] = ((const uint8_t *)bytes)[at];
	end += length;
}

static bool is_full(void)
{
	return end - kept == sizeof(ring) && !is_dropping;
}

static void watch_pipe(bool is_wanted)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = SOURCE_WORKLOAD};

	if (pipe_fd < 0 || is_watched == is_wanted)
		return;
	if (epoll_ctl(epoll_fd, is_wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, pipe_fd, &event) == 0)
		is_watched = is_wanted;
}

/* Reads once into the ring, over its oldest bytes while dropping. */
static void read_some(void)
{
	size_t at = end % sizeof(ring);
	size_t size = sizeof(ring) - at;
	size_t room = sizeof(ring) - (size_t)(end - kept);

	if (!is_dropping && size > room)
		size = room;
	if (pipe_fd < 0 || size == 0)
		return;
	ssize_t got = read(pipe_fd, ring + at, size);
	if (got == 0) {
		close(pipe_fd);
		pipe_fd = -1;
		is_watched = false;
	}
	if (got <= 0)
		return;
	end += (uint64_t)got;
	if (end - kept > sizeof(ring))
		kept = end - sizeof(ring);
	if (sent < kept)
		sent = kept;
}

static void send_piece(size_t size)
{
	output_begin_large(GUEST_FRAME_WORKLOAD_OUTPUT, 0, PIECE_FIELDS_BYTES + size);
	output_u64(FIELD_OFFSET, sent);
	output_field(FIELD_OUTPUT, ring + sent % sizeof(ring), size);
	output_end();
	sent += size;
	credit -= (uint32_t)size;
}

static size_t min_size(size_t one, size_t other)
{
	return one < other ? one : other;
}

/* Does everything that is possible now. Called after every change. */
void workload_pump(void)
{
	while (is_attached && sent < end && credit > 0) {
		size_t room = output_data_room();
		size_t size = min_size(min_size((size_t)(end - sent), credit), sizeof(ring) - sent % sizeof(ring));

		if (room <= PIECE_FIELDS_BYTES)
			break;
		send_piece(min_size(size, min_size(room - PIECE_FIELDS_BYTES, PIECE_BYTES_MAX)));
	}
	if (is_attached && has_exited && !is_exit_reported && sent >= exit_offset && output_has_room()) {
		output_begin(GUEST_FRAME_WORKLOAD_ENDED, 0);
		output_u32(FIELD_EXIT_CODE, (uint32_t)exit_code);
		output_end();
		is_exit_reported = true;
	}
	if (!is_full())
		full_since_ms = 0;
	else if (full_since_ms == 0)
		full_since_ms = clock_ms();
	watch_pipe(!is_full());
}

void workload_event(void)
{
	read_some();
	workload_pump();
}

/* Milliseconds until workload_step() has something to do: -1 without limit. */
int workload_timeout_ms(void)
{
	if (full_since_ms == 0 || pipe_fd < 0)
		return -1;
	int64_t left = full_since_ms + STALLED_MS - clock_ms();

	return left > 0 ? (int)left : 0;
}

/*
 * Called after every event: starts dropping the oldest output when the host has acknowledged nothing for too
 * long.
 */
void workload_step(void)
{
	if (workload_timeout_ms() != 0)
		return;
	is_dropping = true;
	workload_pump();
}

static void ended(int code)
{
	int waiting = 0;

	if (pipe_fd >= 0 && ioctl(pipe_fd, FIONREAD, &waiting) != 0)
		waiting = 0;
	exit_offset = end + (uint64_t)waiting;
	has_exited = true;
	exit_code = code;
	workload_pid = 0;
	cgroup_release(workload_cgroup);
}

/* Returns whether the process was the workload. */
bool workload_exited(pid_t pid, int code)
{
	if (workload_pid == 0 || workload_pid != pid)
		return false;
	ended(code);
	workload_pump();
	return true;
}

/* A command that cannot be run has the reason as its output, like an exec, and counts as ended. */
static int run(struct fields fields, int output)
{
	static char message[GUEST_MESSAGE_BYTES_MAX];

	workload_cgroup = cgroup_acquire();
	int error = exec_workload(fields, output, cgroup_directory(workload_cgroup), &workload_pid, message, sizeof(message));
	if (error == -EBADMSG) {
		cgroup_release(workload_cgroup);
		return error;
	}
	has_started = true;
	if (error != 0) {
		workload_pid = 0;
		keep(message, strlen(message));
		keep("\n", 1);
		ended(EXIT_CODE_NOT_RUN);
	}
	return 0;
}

/*
 * Returns 0 when it runs or has run; -EBADMSG for an invalid request; another negative errno without a pipe.
 */
int workload_start(struct fields fields)
{
	int ends[2];

	if (has_started)
		return 0;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return -errno;
	int error = fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 ? run(fields, ends[1]) : -errno;
	close(ends[1]);
	if (error != 0)
		close(ends[0]);
	else
		pipe_fd = ends[0];
	return error;
}

/* A host that has stored everything before `offset` wants the rest. */
void workload_attach(uint64_t offset)
{
	if (offset > end)
		offset = end;
	if (kept < offset)
		kept = offset;
	sent = kept;
	is_attached = true;
	is_exit_reported = false;
	is_dropping = false;
	credit = WORKLOAD_WINDOW_BYTES;
	workload_pump();
}

/* The host has disconnected; unacknowledged output stays in the ring. */
void workload_detach(void)
{
	is_attached = false;
}

/* The host has stored everything before `offset`, and may be sent `bytes` more. */
int workload_acknowledge(uint64_t offset, uint32_t bytes)
{
	if (offset > sent || bytes > WORKLOAD_WINDOW_BYTES - credit)
		return -EBADMSG;
	if (kept < offset)
		kept = offset;
	credit += bytes;
	is_dropping = false;
	workload_pump();
	return 0;
}

/*
 * Whether output for the connected host is not acknowledged yet. Output that was only sent may still be lost:
 * a host that writes to a guest that is gone reads no more from it.
 */
bool workload_has_unsent_output(void)
{
	return is_attached && (kept < end || (has_exited && !is_exit_reported) || !output_is_empty());
}

void workload_signal(int number)
{
	if (workload_pid > 0)
		kill(-workload_pid, number);
}
