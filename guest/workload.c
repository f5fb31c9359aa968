/*
 * The machine's workload: the command of its image, or of its owner, that runs from the machine's start on.
 *
 * Owns its process, the pipe that is both its stdout and its stderr, and a ring with what it has said last.
 *
 * Always:
 * - It is started at most once in the life of the guest, and nothing that the host does or leaves undone ends it.
 * - Each byte that it says has a number, its offset. The ring keeps what the host has not said to be safe, so a host that
 *   comes back gets everything from where the one before it had got to.
 * - It waits while the ring is full, as it would for a terminal; but when the host takes nothing for STALLED_MS, the oldest
 *   bytes are dropped for as long as that lasts: a service must not hang because nobody reads its log. The host sees it by
 *   the offset of what comes next.
 */
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cgroup.h"
#include "channel.h"
#include "exec.h"
#include "output.h"

#define STALLED_MS 2000
#define EXIT_CODE_NOT_RUN 255
/* A frame's data besides its fields: small enough that what commands say comes between. */
#define PIECE_BYTES_MAX (32 * 1024)
#define PIECE_FIELDS_BYTES (2 * FIELD_HEADER_BYTES + 8)

static int epoll_fd;
static bool has_started, has_exited;
static pid_t workload_pid; /* 0: none runs */
static int workload_cgroup = CGROUP_NONE;
static int exit_code;
static uint64_t words_end; /* once it has exited: the end of what it had said until then */

static int pipe_fd = -1; /* stays open while anything that it started holds the other end */
static bool is_watched;

static uint8_t ring[WORKLOAD_WINDOW_BYTES];
static uint64_t kept; /* the oldest byte of the ring, which holds [kept, end) */
static uint64_t sent; /* the next to send */
static uint64_t end;

static bool is_attached; /* a host wants to hear it */
static bool is_told;	 /* the host knows that it has exited */
static uint32_t credit;	 /* how much may be sent before the host has taken something */
static bool is_dropping;
static int64_t full_since_ms; /* 0: the ring is not full */

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

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

/* Reads once into the ring, over its oldest bytes when they are being dropped. */
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
	output_time(FIELD_OFFSET, sent);
	output_field(FIELD_OUTPUT, ring + sent % sizeof(ring), size);
	output_end();
	sent += size;
	credit -= (uint32_t)size;
}

static size_t least(size_t one, size_t other)
{
	return one < other ? one : other;
}

/* Does what can be done now. Called after everything that may have changed it. */
void workload_pump(void)
{
	while (is_attached && sent < end && credit > 0) {
		size_t room = output_data_room();
		size_t size = least(least((size_t)(end - sent), credit), sizeof(ring) - sent % sizeof(ring));

		if (room <= PIECE_FIELDS_BYTES)
			break;
		send_piece(least(size, least(room - PIECE_FIELDS_BYTES, PIECE_BYTES_MAX)));
	}
	if (is_attached && has_exited && !is_told && sent >= words_end && output_has_room()) {
		output_begin(GUEST_FRAME_WORKLOAD_ENDED, 0);
		output_number(FIELD_EXIT_CODE, (uint32_t)exit_code);
		output_end();
		is_told = true;
	}
	if (!is_full())
		full_since_ms = 0;
	else if (full_since_ms == 0)
		full_since_ms = now_ms();
	watch_pipe(!is_full());
}

void workload_event(void)
{
	read_some();
	workload_pump();
}

/* How long the loop may wait before workload_step() has something to do: -1 without limit. */
int workload_timeout_ms(void)
{
	if (full_since_ms == 0 || pipe_fd < 0)
		return -1;
	int64_t left = full_since_ms + STALLED_MS - now_ms();

	return left > 0 ? (int)left : 0;
}

/* Called after every event: when nobody has taken anything for too long, the newest words are kept, not the oldest. */
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
	words_end = end + (uint64_t)waiting;
	has_exited = true;
	exit_code = code;
	workload_pid = 0;
	cgroup_release(workload_cgroup);
}

/* Whether the process was the workload. */
bool workload_exited(pid_t pid, int code)
{
	if (workload_pid == 0 || workload_pid != pid)
		return false;
	ended(code);
	workload_pump();
	return true;
}

/* A command that can not be run says so itself, as one that was run by hand would, and has ended. */
static int run(struct fields fields, int output)
{
	static char message[GUEST_MESSAGE_BYTES_MAX];

	workload_cgroup = cgroup_take();
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

/* 0 when it runs or has run; -EBADMSG when the request makes no sense; another negative errno when there is no pipe. */
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

/* A host that has got everything before `offset` wants to hear the rest. */
void workload_attach(uint64_t offset)
{
	if (offset > end)
		offset = end;
	if (kept < offset)
		kept = offset;
	sent = kept;
	is_attached = true;
	is_told = false;
	is_dropping = false;
	credit = WORKLOAD_WINDOW_BYTES;
	workload_pump();
}

/* The host is gone, and with it what it had not made safe. */
void workload_detach(void)
{
	is_attached = false;
}

/* The host has made safe what comes before `offset`, and has room for `bytes` more. */
int workload_taken(uint64_t offset, uint32_t bytes)
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
 * Whether there is something that a host wants to hear and has not made safe. What has only gone out may be lost on its
 * way: a host that writes to a guest that is gone reads nothing more of it.
 */
bool workload_has_words(void)
{
	return is_attached && (kept < end || (has_exited && !is_told) || !output_is_empty());
}

void workload_signal(int number)
{
	if (workload_pid > 0)
		kill(-workload_pid, number);
}
