/*
 * One control group per command, so that killing the command reaches all its descendants.
 *
 * Owns the directories `<parent>/flotilla-<n>` and three descriptors for each.
 *
 * Always:
 * - a group is handed out only when the kernel reports it as empty and as able to run a command. Programs of
 *   the machine may have removed it, frozen it, or given its controllers to groups in it: in a frozen group a
 *   command would never run its program, and the agent waits for that (spawn.c); in the others none can be
 *   started;
 * - groups are reused, because creating one takes longer than starting a process;
 * - a group in which a command left processes stays reserved, and is checked again before a new one is
 *   created;
 * - a killed group is not reused: newer kernels (observed with 6.18) kill every process that is started in it
 *   later;
 * - without cgroup version 2 there are no groups, and commands are killed by process group only.
 */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CGROUPS_MAX 512
#define NAME_BYTES_MAX 48
#define CHECKS_MAX 8 /* abandoned groups that are checked before a new one is created */

struct cgroup {
	int directory;
	int events;	/* cgroup.events: says whether it has processes */
	int controllers; /* cgroup.subtree_control: those of groups in it */
	bool is_used;
	bool is_abandoned; /* it could not be used again when it was last checked, or was killed */
	bool is_killed;
	int name;
};

static struct cgroup cgroups[CGROUPS_MAX];
static int cgroup_count;
static int next_check;
static int last_name;
static int parent_directory = -1;
static long agent_pid; /* part of the names, because agents in tests share a parent */

/*
 * Sets the directory for groups, which is on a cgroup2 file system; without it there are none. Only the first
 * call counts.
 */
void cgroup_use(const char *parent)
{
	if (parent_directory >= 0)
		return;
	parent_directory = open(parent, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	agent_pid = (long)getpid();
}

/* The directory of the groups; -1: there are none. */
int cgroup_parent(void)
{
	return parent_directory;
}

enum state { STATE_READY, STATE_FROZEN, STATE_POPULATED, STATE_DIVIDED, STATE_REMOVED };

static enum state state_of(const struct cgroup *cgroup)
{
	char text[128];
	ssize_t size = pread(cgroup->events, text, sizeof(text) - 1, 0);

	if (size < 0)
		return errno == ENODEV ? STATE_REMOVED : STATE_POPULATED;
	text[size] = 0;
	if (strstr(text, "populated 0") == NULL)
		return STATE_POPULATED;
	if (strstr(text, "frozen 1") != NULL)
		return STATE_FROZEN;
	/* Without any it is a line end. */
	return pread(cgroup->controllers, text, sizeof(text), 0) > 1 ? STATE_DIVIDED : STATE_READY;
}

/* Whether processes of the command live; false when unknown, without a group. */
bool cgroup_is_populated(int cgroup)
{
	return cgroup != CGROUP_NONE && state_of(&cgroups[cgroup]) == STATE_POPULATED;
}

static void name_of(int number, char *name, size_t size)
{
	snprintf(name, size, "flotilla-%ld-%d", agent_pid, number);
}

static void close_group(const struct cgroup *cgroup)
{
	const int fds[] = {cgroup->directory, cgroup->events, cgroup->controllers};

	for (size_t at = 0; at < sizeof(fds) / sizeof(fds[0]); at++)
		if (fds[at] >= 0)
			close(fds[at]);
}

static int make(struct cgroup *cgroup)
{
	char name[NAME_BYTES_MAX];
	struct cgroup made = {.events = -1, .controllers = -1, .is_used = true, .name = ++last_name};

	name_of(made.name, name, sizeof(name));
	if (mkdirat(parent_directory, name, 0755) != 0 && errno != EEXIST)
		return -errno;
	made.directory = openat(parent_directory, name, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (made.directory >= 0)
		made.events = openat(made.directory, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (made.events >= 0)
		made.controllers = openat(made.directory, "cgroup.subtree_control", O_RDONLY | O_CLOEXEC);
	if (made.controllers < 0) {
		int error = -errno;
		close_group(&made);
		return error;
	}
	*cgroup = made;
	return 0;
}

/* Replaces a group by a new one, unless there are others in it. */
static int recreate(struct cgroup *cgroup)
{
	char name[NAME_BYTES_MAX];

	name_of(cgroup->name, name, sizeof(name));
	if (unlinkat(parent_directory, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
		return -errno;
	struct cgroup old = *cgroup;
	int error = make(cgroup);
	if (error != 0)
		return error;
	close_group(&old);
	return 0;
}

/* Takes a group that may be used again now. Returns whether it was taken. */
static bool take_again(struct cgroup *cgroup)
{
	enum state state = state_of(cgroup);

	if (state == STATE_POPULATED || state == STATE_FROZEN)
		return false;
	if ((cgroup->is_killed || state != STATE_READY) && recreate(cgroup) != 0)
		return false;
	cgroup->is_abandoned = false;
	cgroup->is_used = true;
	return true;
}

/* Returns a group for a command, or CGROUP_NONE. */
int cgroup_acquire(void)
{
	for (int at = 0; at < cgroup_count; at++) {
		if (cgroups[at].is_used || cgroups[at].is_abandoned)
			continue;
		if (take_again(&cgroups[at]))
			return at;
		cgroups[at].is_abandoned = true;
	}
	for (int check = 0; check < CHECKS_MAX && check < cgroup_count; check++) {
		struct cgroup *cgroup = &cgroups[next_check++ % cgroup_count];

		if (cgroup->is_abandoned && take_again(cgroup))
			return (int)(cgroup - cgroups);
	}
	if (parent_directory < 0 || cgroup_count == CGROUPS_MAX || make(&cgroups[cgroup_count]) != 0)
		return CGROUP_NONE;
	return cgroup_count++;
}

/* Makes the first group, so that a guest that is saved afterwards has one. */
void cgroup_prepare(void)
{
	if (cgroup_count == 0)
		cgroup_release(cgroup_acquire());
}

int cgroup_directory(int cgroup)
{
	return cgroup == CGROUP_NONE ? -1 : cgroups[cgroup].directory;
}

void cgroup_kill(int cgroup)
{
	if (cgroup == CGROUP_NONE)
		return;
	cgroups[cgroup].is_killed = true;
	int fd = openat(cgroups[cgroup].directory, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while (write(fd, "1", 1) < 0 && errno == EINTR)
		;
	close(fd);
}

/* Removes every group without processes. */
void cgroup_remove_all(void)
{
	char name[NAME_BYTES_MAX];

	for (int number = 1; number <= last_name; number++) {
		name_of(number, name, sizeof(name));
		unlinkat(parent_directory, name, AT_REMOVEDIR);
	}
}

void cgroup_release(int cgroup)
{
	if (cgroup == CGROUP_NONE)
		return;
	cgroups[cgroup].is_used = false;
	cgroups[cgroup].is_abandoned = cgroups[cgroup].is_killed;
}
