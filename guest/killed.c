/*
 * The processes that the kernel has killed for lack of memory: read from its log, and reported to the host.
 *
 * Owns the descriptor of the kernel's log.
 *
 * Always:
 * - Only what the kernel itself has logged counts. Programs can write to its log too, but not with its
 *   facility.
 * - At most one report waits to be read by the host. Until then kills are counted, and the last one is named.
 * - A guest that is not configured is not a machine yet, and reports nothing.
 */
#include "killed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "channel.h"
#include "machine.h"
#include "output.h"

#define RECORD_BYTES_MAX 8192
#define READS_MAX 64 /* at a time: commands come in between */
#define FACILITY_SHIFT 3
#define FACILITY_KERNEL 0
#define OUT_OF_MEMORY "ut of memory"
#define KILLED ": Killed process "
#define AFTER_PROGRAM ") total-vm:"

static int log_fd = -1;
static bool is_attached; /* a host has said hello */
static bool is_unread;	 /* a report that the host has not read */
static uint32_t kills;	 /* since the last report */
static char program[KILLED_PROGRAM_BYTES_MAX];

/* `log_path` is KERNEL_LOG, or a pipe with records like its own. Without a log nothing is reported. */
void killed_init(int epoll, const char *log_path)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = SOURCE_KERNEL_LOG};

	log_fd = open(log_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (log_fd < 0)
		return;
	/* What is in it was logged before this guest was a machine. A pipe has no end to go to. */
	lseek(log_fd, 0, SEEK_END);
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, log_fd, &event) == 0)
		return;
	close(log_fd);
	log_fd = -1;
}

/* The last place of a text; NULL: it has none. */
static const char *find_last(const char *text, const char *wanted)
{
	const char *found = NULL;

	for (const char *at = text; (at = strstr(at, wanted)) != NULL; at++)
		found = at;
	return found;
}

/*
 * Counts `<priority>,<sequence>,<time>,<flags>;<message>` if it is a kill. The kernel escapes what is not
 * printable in a program's name.
 */
static void note(const char *record)
{
	char *after_priority;
	unsigned long priority = strtoul(record, &after_priority, 10);
	const char *message = strchr(record, ';');

	if (after_priority == record || *after_priority != ',' || priority >> FACILITY_SHIFT != FACILITY_KERNEL || message == NULL)
		return;
	const char *killed = strstr(message, KILLED);
	const char *reason = strstr(message, OUT_OF_MEMORY);
	if (killed == NULL || reason == NULL || reason > killed)
		return;
	const char *name = strstr(killed + strlen(KILLED), " (");
	const char *end = name == NULL ? NULL : find_last(name, AFTER_PROGRAM);
	if (end == NULL || end < name + 2)
		return;
	size_t length = (size_t)(end - (name + 2));
	if (length >= sizeof(program))
		length = sizeof(program) - 1;
	memcpy(program, name + 2, length);
	program[length] = 0;
	if (kills < UINT32_MAX)
		kills++;
}

/* Each line is a record, or begins with a space and belongs to the one before. */
static void note_all(char *text)
{
	char *rest = text;

	for (char *line; (line = strsep(&rest, "\n")) != NULL;)
		if (machine.is_configured)
			note(line);
}

/*
 * Sends a report if there is one and the host reads it. Called after every change, and when the queue has
 * room again.
 */
void killed_pump(void)
{
	if (!is_attached || is_unread || kills == 0 || !output_has_room())
		return;
	output_begin(GUEST_FRAME_KILLED, 0);
	output_text(FIELD_PROGRAM, program);
	output_u32(FIELD_KILLS, kills);
	output_end();
	is_unread = true;
	kills = 0;
}

void killed_event(void)
{
	static char text[RECORD_BYTES_MAX + 1];

	for (int reads = 0; reads < READS_MAX; reads++) {
		ssize_t size = read(log_fd, text, sizeof(text) - 1);

		/* Some records were replaced by later ones before they were read, or one is longer than any of these. */
		if (size < 0 && (errno == EPIPE || errno == EINVAL))
			continue;
		if (size <= 0)
			break;
		text[size] = 0;
		note_all(text);
	}
	killed_pump();
}

/* The next host has said hello: a report that the one before has not read may be lost. */
void killed_attach(void)
{
	is_attached = true;
	is_unread = false;
	killed_pump();
}

void killed_read_by_host(void)
{
	is_unread = false;
	killed_pump();
}
