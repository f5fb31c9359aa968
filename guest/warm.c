/*
 * Runs a machine's start before there is a machine, so that an emulated processor has already translated that code.
 *
 * A child, in its own mount and host name namespaces, is configured like a machine, runs a few commands on a temporary
 * disk, if it got one, and ends.
 *
 * Always: when the child has ended, its mounts are gone and the disk is not in use. It has changed only the guest's clock
 * and its network interfaces, which have the same address in every machine. The agent stays unconfigured.
 */
#include "warm.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "log.h"
#include "machine.h"
#include "spawn.h"

#define ROUNDS 3

static int run_command(int null_fd)
{
	static const char *arguments[] = {NULL, "/bin/sh", "-lc", "true", NULL};
	static const char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
	char text[256];
	struct spawn spawn = {
		.argv = (char **)(uintptr_t)(arguments + 1),
		.environment = (char **)(uintptr_t)environment,
		.path = environment[0] + sizeof("PATH=") - 1,
		.cwd = "/",
		.fds = {null_fd, null_fd, null_fd},
	};
	pid_t pid;
	int error = user_resolve("", &spawn.identity, text, sizeof(text));

	if (error != 0)
		return error;
	int cgroup = cgroup_acquire();
	spawn.cgroup_directory = cgroup_directory(cgroup);
	error = spawn_start(&spawn, &pid, text, sizeof(text));
	while (error == 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	cgroup_release(cgroup);
	return error;
}

static int run_start(struct fields fields)
{
	const char *step = "create namespaces";
	int error = unshare(CLONE_NEWNS | CLONE_NEWUTS) == 0 ? 0 : -errno;

	if (error == 0)
		error = machine_configure(fields, &step);
	if (error != 0) {
		log_line("cannot warm up: failed to", step, error);
		return error;
	}
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int round = 0; round < ROUNDS && error == 0; round++)
		error = run_command(null_fd);
	cgroup_remove_all();
	/* Without a disk there is no shell, which is not an error. */
	return error == -ENOENT ? 0 : error;
}

/* Returns the child's pid; it exits with 0 on success. */
pid_t warm_up(struct fields fields)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(run_start(fields) == 0 ? 0 : 1);
	return pid;
}
