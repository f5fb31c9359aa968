/*
 * Starts a command: a new process in its own session, control group, directory and identity that runs a
 * program.
 *
 * Owns the stack that a child uses until it runs its program, and the report of why it could not.
 *
 * Always: when spawn_start() returns 0 the program runs. The agent waits until then (CLONE_VFORK), so it
 * learns the result without a pipe or an event. A child never returns from here.
 *
 * Until then a child shares the agent's memory (CLONE_VM): copying page tables, and then every page written
 * by either process, took a sixth of a short command's time. So a child changes only memory that the agent
 * expects to change, and has its own descriptors, directory and signal mask. After a child has changed its
 * identity, its user still cannot inspect it: the kernel protects the memory of a process that changed
 * identity until it runs another program.
 */
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM_PATH_BYTES_MAX 4096
#define CHILD_STACK_BYTES (64 * 1024)
/* Marks functions that run in a child, because the address sanitizer does not know its stack. */
#define IN_CHILD __attribute__((no_sanitize_address))

enum step { STEP_RUNNING, STEP_IDENTITY, STEP_DIRECTORY, STEP_PROGRAM };

struct report {
	enum step step; /* the step that failed */
	int error;
};

static volatile struct report report; /* from the child to the agent */
static bool has_plain_root;	      /* the agent is root without supplementary groups */
static uint8_t child_stack[CHILD_STACK_BYTES] __attribute__((aligned(16)));

int spawn_init(void)
{
	has_plain_root = getuid() == 0 && getgid() == 0 && getgroups(0, NULL) == 0;
	return 0;
}

IN_CHILD static _Noreturn void report_failure(enum step step, int error)
{
	report.error = error;
	report.step = step;
	_exit(255);
}

IN_CHILD static int assume_identity(const struct identity *identity)
{
	if (identity->uid == getuid() && identity->gid == getgid() && identity->group_count == 0 && has_plain_root)
		return 0;
	if (setgroups(identity->group_count, identity->groups) != 0 || setgid(identity->gid) != 0 ||
	    setuid(identity->uid) != 0)
		return -errno;
	return 0;
}

/* Runs the file. A file that is neither a program nor names an interpreter is run as a shell script. */
IN_CHILD static int run(const struct spawn *spawn, const char *file)
{
	execve(file, spawn->argv, spawn->environment);
	if (errno != ENOEXEC)
		return -errno;
	char **argv = spawn->argv - 1;
	char shell[] = "/bin/sh", path[PROGRAM_PATH_BYTES_MAX];

	snprintf(path, sizeof(path), "%s", file);
	argv[0] = shell;
	argv[1] = path;
	execve(shell, argv, spawn->environment);
	return -errno;
}

/* Returns only if nothing could be run. A file without permission is remembered, and the search continues. */
IN_CHILD static int run_from_path(const struct spawn *spawn)
{
	const char *name = spawn->argv[0];
	int found = -ENOENT;
	char file[PROGRAM_PATH_BYTES_MAX];

	if (strchr(name, '/') != NULL)
		return run(spawn, name);
	if (name[0] == 0)
		return -ENOENT;
	for (const char *at = spawn->path; at != NULL;) {
		const char *colon = strchr(at, ':');
		int length = (int)(colon == NULL ? strlen(at) : (size_t)(colon - at));
		int size = snprintf(file, sizeof(file), "%.*s%s%s", length, at, length == 0 ? "" : "/", name);

		at = colon == NULL ? NULL : colon + 1;
		if (size >= (int)sizeof(file) || access(file, F_OK) != 0)
			continue;
		int error = run(spawn, file);
		if (error != -EACCES && error != -ENOENT && error != -ENOTDIR)
			return error;
		if (error == -EACCES)
			found = -EACCES;
	}
	return found;
}

IN_CHILD static _Noreturn void run_child(const struct spawn *spawn)
{
	sigset_t none;
	int error;

	setsid();
	for (int fd = 0; fd < 3; fd++)
		if (dup2(spawn->fds[fd], fd) < 0)
			report_failure(STEP_PROGRAM, -errno);
	if (spawn->has_terminal)
		ioctl(0, TIOCSCTTY, 0);
	/* With the command's own rights, so that the directory must be accessible to its user. */
	error = assume_identity(spawn->identity);
	if (error != 0)
		report_failure(STEP_IDENTITY, error);
	if (chdir(spawn->cwd) != 0)
		report_failure(STEP_DIRECTORY, -errno);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	report_failure(STEP_PROGRAM, run_from_path(spawn));
}

/*
 * The C library has no function for this: a child that shares memory must not return from the function that
 * created it, because the agent still needs that stack frame. The child starts at the top of child_stack, in
 * run_child().
 */
static pid_t clone_child(const struct spawn *spawn)
{
	struct clone_args args = {
		.flags = CLONE_VFORK | CLONE_VM,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)child_stack,
		.stack_size = sizeof(child_stack),
	};
	register const struct spawn *spawned __asm__("r12") = spawn;
	long result;

	if (spawn->cgroup_directory >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint32_t)spawn->cgroup_directory;
	}
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r12, %%rdi\n\t"
			 "call *%[run_child]\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_clone3), "D"(&args), "S"(sizeof(args)), "r"(spawned), [run_child] "r"(run_child)
			 : "rcx", "r11", "memory");
	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : (pid_t)result;
}

/* Returns 0 with the pid, or a negative errno with a message for the command's stderr. */
int spawn_start(const struct spawn *spawn, pid_t *pid, char *message, size_t message_size)
{
	report.step = STEP_RUNNING;
	*pid = clone_child(spawn);
	if (*pid < 0) {
		int error = -errno;
		snprintf(message, message_size, "cannot start a process: %s", strerror(-error));
		return error;
	}
	if (report.step == STEP_RUNNING)
		return 0;
	while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
		;
	const char *reason = strerror(-report.error);
	if (report.step == STEP_DIRECTORY)
		snprintf(message, message_size, "chdir to '%s': %s", spawn->cwd, reason);
	else if (report.step == STEP_IDENTITY)
		snprintf(message, message_size, "cannot become user %u: %s", spawn->identity->uid, reason);
	else if (report.error == -ENOENT || report.error == -ENOTDIR)
		snprintf(message, message_size, "executable file '%s' not found in $PATH: No such file or directory",
			 spawn->argv[0]);
	else
		snprintf(message, message_size, "executable file '%s' cannot be run: %s", spawn->argv[0], reason);
	return report.error;
}
