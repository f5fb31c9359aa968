/* How fast the guest's timer counts, as its kernel has measured it. */
#ifndef FLOTILLA_TIMER_H
#define FLOTILLA_TIMER_H

#include <stdint.h>

#define TIMER_LIST "/proc/timer_list"
#define TIMER_UNKNOWN (-1)

void timer_init(const char *list_path);
int64_t timer_khz(void);

#endif
