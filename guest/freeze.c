/*
 * Stops all programs of the machine, so that a copy of its memory has them at one instant, and none of them
 * runs in the copy before that has its own identity.
 *
 * Owns the state of the freezers of the control groups below the agent's, while it lasts.
 *
 * Always:
 * - Every program is in one of these groups: those that their users have put into the root group, which has
 *   no freezer, are moved. Only the agent and its workers run.
 * - A group that a program had frozen itself is left alone, also when the others run again.
 * - The programs run again by themselves after THAW_MS of the guest's time, so a host that is lost costs the
 *   machine no more. In a copy they do not: freeze_hold() ends that timer before anything else.
 */
#include "freeze.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "clock.h"
#include "log.h"

#define THAW_MS 5000
/* How long a program may take to stop: one that waits for the disk is not stopped before it has waited. */
#define STOP_MS 500
#define STOP_POLL_US 200
#define GROUPS_MAX 1024
#define STRAYS "flotilla-strays"
/* Processes may be made while others are moved. */
#define MOVES_MAX 8

static int thaw_ms = THAW_MS;
static bool is_on;
static int64_t thaw_at_ms; /* 0: not by itself */
static int groups[GROUPS_MAX];
static int group_count;

/* Tests use a shorter time. */
void freeze_use_thaw_ms(int ms)
{
	thaw_ms = ms;
}

static int write_text(int directory, const char *name, const char *text)
{
	int fd = openat(directory, name, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	int error = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return error;
}

/* Reads the start of a file of a group. Returns false when there is none. */
static bool read_text(int directory, const char *name, char *text, size_t size)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = 0;
	return got >= 0;
}

/* Whether the process runs a program, and not that of the agent: threads of the kernel have none. */
static bool is_program(long pid)
{
	char path[64];
	struct stat own, other;

	snprintf(path, sizeof(path), "/proc/%ld/exe", pid);
	if (pid == 1 || stat(path, &other) != 0 || stat("/proc/self/exe", &own) != 0)
		return false;
	return own.st_ino != other.st_ino || own.st_dev != other.st_dev;
}

/* Moves the programs of the root group into another one. Returns how many there were. */
static int move_strays(int parent)
{
	char text[32], pid_text[32];
	int moved = 0;
	FILE *list = NULL;
	int fd = openat(parent, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	int target = -1;

	if (fd >= 0)
		list = fdopen(fd, "r");
	if (list == NULL) {
		if (fd >= 0)
			close(fd);
		return -errno;
	}
	while (fgets(text, sizeof(text), list) != NULL) {
		long pid = strtol(text, NULL, 10);

		if (!is_program(pid))
			continue;
		if (target < 0 && mkdirat(parent, STRAYS, 0755) != 0 && errno != EEXIST)
			break;
		if (target < 0)
			target = openat(parent, STRAYS, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
		snprintf(pid_text, sizeof(pid_text), "%ld", pid);
		/* One that has ended meanwhile cannot be moved. */
		moved += write_text(target, "cgroup.procs", pid_text) == 0;
	}
	fclose(list);
	if (target >= 0)
		close(target);
	return moved;
}

static int freeze_group(int parent, const char *name)
{
	char state[8];

	if (group_count == GROUPS_MAX)
		return -E2BIG;
	int fd = openat(parent, name, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!read_text(fd, "cgroup.freeze", state, sizeof(state)) || state[0] == '1') {
		close(fd);
		return 0;
	}
	int error = write_text(fd, "cgroup.freeze", "1");
	if (error != 0) {
		close(fd);
		return error == -ENODEV ? 0 : error;
	}
	groups[group_count++] = fd;
	return 0;
}

static int freeze_groups(int parent)
{
	int error = 0;
	int fd = openat(parent, ".", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	if (directory == NULL)
		return -errno;
	for (const struct dirent *entry; error == 0 && (entry = readdir(directory)) != NULL;)
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			error = freeze_group(parent, entry->d_name);
	closedir(directory);
	return error;
}

static bool has_stopped(int group)
{
	char text[128];

	return !read_text(group, "cgroup.events", text, sizeof(text)) || strstr(text, "frozen 1") != NULL;
}

/* Waits here, because no program can have anything for the agent to do. */
static int wait_until_stopped(void)
{
	int64_t until = clock_ms() + STOP_MS;

	for (int at = 0; at < group_count;) {
		if (has_stopped(groups[at]))
			at++;
		else if (clock_ms() >= until)
			return -EBUSY;
		else
			usleep(STOP_POLL_US);
	}
	return 0;
}

static void thaw(void)
{
	while (group_count > 0) {
		int fd = groups[--group_count];
		int error = write_text(fd, "cgroup.freeze", "0");

		if (error != 0 && error != -ENODEV)
			log_line("cannot let a control group run again", NULL, error);
		close(fd);
	}
	is_on = false;
	thaw_at_ms = 0;
}

/*
 * Returns 0 when every program has stopped. Otherwise all of them run on. `has_root_group`: the groups are
 * those of the whole guest, and the group above them has programs too.
 */
int freeze_begin(bool has_root_group)
{
	int parent = cgroup_parent();
	int error = parent < 0 ? -EOPNOTSUPP : 0;
	int moved = 0;

	if (is_on)
		return -EALREADY;
	for (int attempt = 0; error == 0 && has_root_group && attempt < MOVES_MAX; attempt++) {
		moved = move_strays(parent);
		if (moved <= 0)
			break;
	}
	if (moved != 0)
		error = moved < 0 ? moved : -EBUSY;
	if (error == 0)
		error = freeze_groups(parent);
	if (error == 0)
		error = wait_until_stopped();
	if (error != 0) {
		thaw();
		return error;
	}
	is_on = true;
	thaw_at_ms = clock_ms() + thaw_ms;
	return 0;
}

/* Returns whether the programs had been stopped until now. */
bool freeze_end(void)
{
	bool was_on = is_on;

	if (is_on)
		thaw();
	return was_on;
}

bool freeze_is_on(void)
{
	return is_on;
}

/* The programs do not run again by themselves. */
void freeze_hold(void)
{
	thaw_at_ms = 0;
}

/* Milliseconds until freeze_step() has something to do: -1 without limit. */
int freeze_timeout_ms(void)
{
	if (thaw_at_ms == 0)
		return -1;
	int64_t left = thaw_at_ms - clock_ms();

	return left > 0 ? (int)left : 0;
}

/* Called after every event. */
void freeze_step(void)
{
	if (freeze_timeout_ms() != 0)
		return;
	log_line("the host did not let the programs run again in time; they do", NULL, 0);
	thaw();
}
