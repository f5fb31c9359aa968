/*
 * The agent of a Flotilla machine: PID 1 of its guest, controlled by the host.
 *
 * Boots, then runs one loop over the port to the host, the signals of ended processes and the pipes of
 * commands.
 *
 * Always:
 * - one thread;
 * - timers run only while the machine or a terminal is being ended or the workload's output is blocked, plus
 *   a slow one while commands run (memory.c), so an idle guest does nothing but answer its host's questions;
 * - the port is watched edge-triggered, because otherwise it would be reported continuously while no host is
 *   connected.
 *
 * `agent --fd N` runs the same on the host over an inherited socket, for tests: it mounts nothing and does
 * not change the system. `--cgroup DIRECTORY` names a directory for control groups there, `--resume-ms N`
 * replaces RESUME_MS, `--timer-list FILE` names a copy of TIMER_LIST,
 * `--kernel-log PIPE` one of KERNEL_LOG, `--thaw-ms N` replaces THAW_MS.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boot.h"
#include "cgroup.h"
#include "channel.h"
#include "drain.h"
#include "exec.h"
#include "freeze.h"
#include "host.h"
#include "killed.h"
#include "log.h"
#include "machine.h"
#include "memory.h"
#include "output.h"
#include "shutdown.h"
#include "spawn.h"
#include "timer.h"
#include "watch.h"
#include "workload.h"

#define EVENTS_MAX 64
#define DESCRIPTORS_SOFT 65536
#define DESCRIPTORS_HARD 1048576

static int epoll_fd, port_fd, signals_fd;
static const char *kernel_log; /* NULL: none is read */
static bool has_children = true;
static bool input_waits;      /* unprocessed input, because the answers had no room */
static bool port_wants_write; /* the port is full; waits for it to become writable */

static int watch(int fd, enum source source, uint32_t events, int operation)
{
	struct epoll_event event = {.events = events, .data.u64 = source};

	return epoll_ctl(epoll_fd, operation, fd, &event) == 0 ? 0 : -errno;
}

/* All signals are blocked: SIGCHLD arrives as an event, and writing to a closed pipe is an ordinary error. */
static int open_signals(void)
{
	sigset_t all, children;

	sigfillset(&all);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	if (sigprocmask(SIG_SETMASK, &all, NULL) != 0)
		return -errno;
	signals_fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	return signals_fd < 0 ? -errno : 0;
}

static void raise_limits(void)
{
	struct rlimit limit = {.rlim_cur = DESCRIPTORS_SOFT, .rlim_max = DESCRIPTORS_HARD};

	if (setrlimit(RLIMIT_NOFILE, &limit) == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		log_line("cannot raise the limit of open files", NULL, -errno);
}

/* The earlier of two timeouts; -1 is without limit. */
static int earlier(int one, int other)
{
	return one < 0 || (other >= 0 && other < one) ? other : one;
}

/* Milliseconds until a timer is due: -1 without limit. */
static int timeout_ms(void)
{
	int soonest = earlier(earlier(shutdown_timeout_ms(), workload_timeout_ms()), channel_timeout_ms());

	return earlier(earlier(soonest, freeze_timeout_ms()), memory_timeout_ms(has_children));
}

static int prepare(void)
{
	umask(022);
	raise_limits();
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		return -errno;
	channel_init();
	watch_init(epoll_fd);
	drain_init(epoll_fd);
	workload_init(epoll_fd);
	host_init(port_fd);
	if (machine.is_init)
		kernel_log = KERNEL_LOG;
	if (kernel_log != NULL)
		killed_init(epoll_fd, kernel_log);
	int error = open_signals();
	if (error == 0)
		error = exec_init();
	if (error == 0)
		error = spawn_init();
	if (error == 0)
		error = watch(signals_fd, SOURCE_SIGNALS, EPOLLIN, EPOLL_CTL_ADD);
	if (error == 0)
		error = watch(port_fd, SOURCE_PORT, EPOLLIN | EPOLLET, EPOLL_CTL_ADD);
	return error;
}

/* Reaps every exited child and reports it to its owner. */
static void reap(void)
{
	struct signalfd_siginfo signals[8];
	struct rusage usage;
	int status;
	pid_t pid;

	while (read(signals_fd, signals, sizeof(signals)) == (ssize_t)sizeof(signals))
		;
	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
		int exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

		if (!channel_exited(pid, exit_code) && !workload_exited(pid, exit_code))
			host_worker_exited(pid, exit_code);
		memory_check(usage.ru_maxrss);
	}
	has_children = pid == 0;
}

/*
 * Checks without reaping. The result of the last reap is too old: other children may have been started since.
 */
static bool check_for_children(void)
{
	siginfo_t ignored;

	return waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Writes the queue to the port, and waits for it to become writable if it is full. */
static int flush(void)
{
	int error = output_flush(port_fd);
	bool wants_write = error == -EAGAIN;

	if (error != 0 && !wants_write)
		return error;
	if (wants_write == port_wants_write)
		return 0;
	port_wants_write = wants_write;
	return watch(port_fd, SOURCE_PORT, EPOLLIN | EPOLLET | (wants_write ? EPOLLOUT : 0), EPOLL_CTL_MOD);
}

static void handle(const struct epoll_event *event, bool *has_input)
{
	if (event->data.u64 == SOURCE_PORT)
		*has_input = true;
	else if (event->data.u64 == SOURCE_SIGNALS)
		reap();
	else if (event->data.u64 == SOURCE_WORKLOAD)
		workload_event();
	else if (event->data.u64 == SOURCE_KERNEL_LOG)
		killed_event();
	else if ((event->data.u64 & 0xff) == SOURCE_DRAIN)
		drain_event(event->data.u64);
	else
		channel_event(event->data.u64);
}

/* One iteration of the loop: handles all events, then their consequences. */
static int run_once(void)
{
	struct epoll_event events[EVENTS_MAX];
	bool has_input = input_waits, was_full;
	int count = epoll_wait(epoll_fd, events, EVENTS_MAX, timeout_ms());

	if (count < 0)
		return errno == EINTR ? 0 : -errno;
	if (count == 0) {
		reap(); /* updates has_children */
		memory_check(0);
	}
	for (int at = 0; at < count; at++)
		handle(&events[at], &has_input);
	freeze_step();
	channel_step();
	do {
		int got = has_input ? host_read() : 0;
		if (got < 0)
			return got;
		input_waits = got == 1;
		has_input = input_waits;
		was_full = output_data_room() == 0;
		int error = flush();
		if (error != 0)
			return error;
		if (was_full && output_data_room() > 0) {
			channel_pump_all();
			workload_pump();
			killed_pump();
		}
		/* There is more input and room again: do not wait for an event that has already been delivered. */
	} while ((has_input && output_has_room()) || (!output_is_empty() && !port_wants_write));
	workload_step();
	if (shutdown_has_begun())
		has_children = check_for_children();
	shutdown_step(has_children || workload_has_unsent_output());
	return 0;
}

static int parse_arguments(int argc, char **argv)
{
	for (int at = 1; at + 1 < argc; at += 2) {
		if (strcmp(argv[at], "--fd") == 0)
			port_fd = atoi(argv[at + 1]);
		else if (strcmp(argv[at], "--cgroup") == 0)
			cgroup_use(argv[at + 1]);
		else if (strcmp(argv[at], "--resume-ms") == 0)
			channel_use_resume_ms(atoi(argv[at + 1]));
		else if (strcmp(argv[at], "--thaw-ms") == 0)
			freeze_use_thaw_ms(atoi(argv[at + 1]));
		else if (strcmp(argv[at], "--timer-list") == 0)
			timer_init(argv[at + 1]);
		else if (strcmp(argv[at], "--kernel-log") == 0)
			kernel_log = argv[at + 1];
		else
			return -EINVAL;
	}
	return port_fd > 2 && fcntl(port_fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(port_fd, F_SETFD, FD_CLOEXEC) == 0 ? 0
														     : -EBADF;
}

int main(int argc, char **argv)
{
	memory_use_small_pages();
	machine.is_init = getpid() == 1 && argc == 1;
	int error = machine.is_init ? boot(&port_fd) : parse_arguments(argc, argv);

	if (error == 0 && !machine.is_init && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
		error = -errno;
	if (error == 0)
		error = prepare();
	while (error == 0)
		error = run_once();
	if (error == -EPIPE && !machine.is_init) {
		channel_end_all();
		workload_signal(SIGKILL);
		return 0;
	}
	log_fatal("the agent cannot continue", error);
}
