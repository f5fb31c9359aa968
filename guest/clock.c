/*
 * The monotonic clock, for timeouts.
 *
 * Always: never set back, whatever happens to the time of day. Stops while the VM is paused.
 */
#include "clock.h"

#include <time.h>

/* Milliseconds since an arbitrary start. */
int64_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
