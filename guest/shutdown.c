/*
 * Shuts the machine down: asks all processes to end, waits for them, kills the rest, syncs and powers off.
 *
 * Always: takes at most GRACE_MS plus the time of a sync, and no longer than the processes need. Once begun
 * it completes, whether the host is connected or not.
 */
#include "shutdown.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "channel.h"
#include "clock.h"
#include "log.h"
#include "machine.h"
#include "mount.h"
#include "workload.h"

#define GRACE_MS 3000

static bool has_begun;
static int64_t deadline_ms;

void shutdown_begin(void)
{
	if (has_begun)
		return;
	has_begun = true;
	deadline_ms = clock_ms() + GRACE_MS;
	channel_hang_up_terminals();
	if (machine.is_init)
		kill(-1, SIGTERM);
	else
		channel_signal_all(SIGTERM);
	if (!machine.is_init)
		workload_signal(SIGTERM);
}

bool shutdown_has_begun(void)
{
	return has_begun;
}

/* Milliseconds until the grace is over: -1 without limit. */
int shutdown_timeout_ms(void)
{
	int64_t left = deadline_ms - clock_ms();

	if (!has_begun)
		return -1;
	return left > 0 ? (int)left : 0;
}

/*
 * Called after every event: completes the shutdown when no process is left and all output is stored, or the
 * grace is over.
 */
void shutdown_step(bool is_busy)
{
	if (!has_begun || (is_busy && shutdown_timeout_ms() > 0))
		return;
	if (!machine.is_init) {
		channel_end_all();
		workload_signal(SIGKILL);
		_exit(0);
	}
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	mount_sync_and_close();
	reboot(RB_POWER_OFF);
	reboot(RB_AUTOBOOT); /* a machine that cannot power off: its reset ends the VMM */
	log_fatal("cannot power off", -errno);
}
