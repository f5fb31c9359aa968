/* The descriptors of commands that the main loop waits for. */
#ifndef FLOTILLA_WATCH_H
#define FLOTILLA_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "channel-state.h"

void watch_init(int epoll);
bool watch_add(const struct channel *channel, enum source source, int fd, uint32_t events);
bool watch_remove(int fd);

#endif
