/*
 * Ends a VMM at a given instant, by a timer of the kernel. Part of the library that is loaded into QEMU
 * (template-memory.c).
 *
 * The instant comes from FLOTILLA_FENCE_AT, before QEMU runs, or later from a path that QEMU is asked to
 * open. It is absolute, on a clock that also counts while the host is suspended. So whatever is late, stopped
 * or dead in between, agent or VMM, makes it no later.
 *
 * Always: the timer sends SIGKILL, which ends a stopped process as well. It belongs to the process and is not
 * inherited.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fence.h"

/* The rest of the path is the instant in milliseconds; 0: none. */
static const char PREFIX[] = "/proc/self/flotilla-fence-";

static timer_t timer;
static int has_timer;

static int set_fence(const char *text)
{
	char *end;
	errno = 0;
	unsigned long long at = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0')
		return EINVAL;
	if (!has_timer) {
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL };
		if (timer_create(CLOCK_BOOTTIME, &event, &timer) != 0)
			return errno;
		has_timer = 1;
	}
	struct itimerspec when = { .it_value = { .tv_sec = (time_t)(at / 1000), .tv_nsec = (long)(at % 1000) * 1000000 } };
	return timer_settime(timer, TIMER_ABSTIME, &when, NULL) == 0 ? 0 : errno;
}

/* A VMM that should be fenced and cannot be must not run. */
__attribute__((constructor)) static void set_first_fence(void)
{
	const char *text = getenv("FLOTILLA_FENCE_AT");
	if (text != NULL && set_fence(text) != 0)
		abort();
}

int fence_of_path(const char *path)
{
	if (strncmp(path, PREFIX, sizeof PREFIX - 1) != 0)
		return 0;
	int error = set_fence(path + sizeof PREFIX - 1);
	/* The caller sees this one: there is no such file, and no other open fails with it. */
	errno = error == 0 ? ECANCELED : error;
	return 1;
}
