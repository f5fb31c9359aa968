/*
 * Reads and discards the output of commands whose callers are those of another machine, the one that this
 * guest was copied from. Without a reader they would block, or end with SIGPIPE or SIGHUP.
 *
 * Owns the descriptors it was given, each until its last writer has closed the other end.
 *
 * Always: one read for each event, so no command that writes without pause keeps the agent from others.
 */
#include "drain.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "channel-state.h"

#define DRAINS_MAX 2048
#define PIECE_BYTES 65536

static int epoll_fd;
static int drains[DRAINS_MAX]; /* a descriptor + 1; 0: free */
static uint8_t piece[PIECE_BYTES];

void drain_init(int epoll)
{
	epoll_fd = epoll;
}

/* Takes the descriptor, which is not watched. Without room for it its command loses its reader. */
void drain_add(int fd)
{
	for (uint64_t at = 0; at < DRAINS_MAX; at++) {
		struct epoll_event event = {.events = EPOLLIN, .data.u64 = SOURCE_DRAIN | at << 8};

		if (drains[at] != 0)
			continue;
		if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
			break;
		drains[at] = fd + 1;
		return;
	}
	close(fd);
}

void drain_event(uint64_t key)
{
	int *drain = &drains[key >> 8];

	if (*drain == 0)
		return;
	ssize_t got = read(*drain - 1, piece, sizeof(piece));
	if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	/* A terminal that no program has open reports an error. */
	close(*drain - 1);
	*drain = 0;
}
