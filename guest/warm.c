/*
 * Runs a machine's start before there is a machine, so that an emulated processor has already translated that
 * code.
 *
 * Before the guest is configured: a child, in its own mount and host name namespaces, is configured like a
 * machine, runs a few commands on a temporary disk, if it got one, and ends. Afterwards: a child runs the
 * image's shell while every mount is read-only for it, so that the kernel has read the shell before the guest
 * is saved.
 *
 * Always: when the child has ended, its mounts are gone and the temporary disk is not in use. It has changed
 * only the guest's clock and its network interfaces, which have the same address in every machine. The agent
 * keeps its state. What a command on the machine's own disk does is the same in all machines that start from
 * the saved guest, so it can write no file there, and the warm-up fails if it leaves a process.
 */
#include "warm.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "log.h"
#include "machine.h"
#include "spawn.h"

#define ROUNDS 3
#define READ_BYTES (64 * 1024)
#define PROGRAM_BYTES_MAX (4 * 1024 * 1024)

/* Fails if a process of the command is left. */
static int run_command(int null_fd, const char *options)
{
	const char *arguments[] = {NULL, "/bin/sh", options, "true", NULL};
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
	if (cgroup_is_populated(cgroup)) {
		cgroup_kill(cgroup);
		error = -EBUSY;
	}
	cgroup_release(cgroup);
	return error;
}

/* Without a disk, or in an image without one, there is no shell, which is not an error. */
static int run_commands(const char *options)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), error = 0;

	for (int round = 0; round < ROUNDS && error == 0; round++)
		error = run_command(null_fd, options);
	return error == -ENOENT ? 0 : error;
}

static int run_start(struct fields fields, const char **step)
{
	int error = machine_configure(fields, step);

	if (error != 0)
		return error;
	*step = "run commands";
	error = run_commands("-lc");
	cgroup_remove_all();
	return error;
}

/* Reads a program to its end: running it reads only the parts that it needs for that. */
static void read_program(const char *path)
{
	static char bytes[READ_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	for (size_t total = 0; fd >= 0 && total < PROGRAM_BYTES_MAX; total += sizeof(bytes))
		if (read(fd, bytes, sizeof(bytes)) <= 0)
			break;
	if (fd >= 0)
		close(fd);
}

/* Not as a login shell: that runs scripts of the image. */
static int run_read_only(const char **step)
{
	struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};

	*step = "make the mounts read-only";
	if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof(read_only)) != 0)
		return -errno;
	*step = "run commands";
	read_program("/bin/sh");
	return run_commands("-c");
}

static int run_child(struct fields fields)
{
	const char *step = "create namespaces";
	int error = unshare(CLONE_NEWNS | CLONE_NEWUTS) == 0 ? 0 : -errno;

	if (error == 0)
		error = machine.is_configured ? run_read_only(&step) : run_start(fields, &step);
	if (error != 0)
		log_line("cannot warm up: failed to", step, error);
	return error;
}

/* Returns the child's pid; it exits with 0 on success. */
pid_t warm_up(struct fields fields)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(run_child(fields) == 0 ? 0 : 1);
	return pid;
}
