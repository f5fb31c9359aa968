/*
 * Adds the descriptors of channels to the main loop's epoll set, and removes them.
 *
 * Always: an event's key names the source, the channel and its generation, as channel_event() reads it.
 */
#include "watch.h"

#include <sys/epoll.h>

static int epoll_fd;

void watch_init(int epoll)
{
	epoll_fd = epoll;
}

/* Returns whether the descriptor is watched now. */
bool watch_add(const struct channel *channel, enum source source, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events};

	event.data.u64 = (uint64_t)source | (uint64_t)(channel->number - 1) << 8 | (uint64_t)channel->generation << 32;
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Returns whether the descriptor is no longer watched. */
bool watch_remove(int fd)
{
	return epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL) == 0;
}
