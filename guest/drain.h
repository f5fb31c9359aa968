/* Reads the output of commands that have no callers any more. */
#ifndef FLOTILLA_DRAIN_H
#define FLOTILLA_DRAIN_H

#include <stdint.h>

void drain_init(int epoll);
void drain_add(int fd);
void drain_event(uint64_t key);

#endif
