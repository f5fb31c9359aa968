/*
 * A control group for each command, so that killing the command reaches every descendant, whatever it did to escape.
 *
 * Owns the directories `<parent>/flotilla-<n>` and two descriptors for each.
 *
 * Always: a group is handed out only when the kernel says that nothing lives in it. Groups are used again instead of
 * removed: making one takes longer than starting a process. What a command left running keeps its group; such groups are
 * looked at again before a new one is made. Without cgroup version 2 there are none, and commands are killed by process
 * group only.
 */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CGROUPS_MAX 512
#define LOOKS_MAX 8 /* how many left groups are looked at before a new one is made */

struct cgroup {
	int directory;
	int events; /* cgroup.events: says whether anything lives in it */
	bool is_taken;
	bool is_left; /* its command has ended, and something of it may live on */
};

static struct cgroup cgroups[CGROUPS_MAX];
static int cgroup_count;
static int next_look;
static int parent_directory = -1;
static long agent_pid; /* in the names: several agents of a test share a parent */

/* Makes the groups below this directory, which is on a cgroup2 file system; without it there are none. */
void cgroup_use(const char *parent)
{
	parent_directory = open(parent, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	agent_pid = (long)getpid();
}

static bool is_empty(const struct cgroup *cgroup)
{
	char events[128];
	ssize_t size = pread(cgroup->events, events, sizeof(events) - 1, 0);

	if (size < 0)
		return false;
	events[size] = 0;
	return strstr(events, "populated 0") != NULL;
}

static int make(void)
{
	struct cgroup *cgroup = &cgroups[cgroup_count];
	char name[48];

	if (parent_directory < 0 || cgroup_count == CGROUPS_MAX)
		return CGROUP_NONE;
	snprintf(name, sizeof(name), "flotilla-%ld-%d", agent_pid, cgroup_count);
	if (mkdirat(parent_directory, name, 0755) != 0 && errno != EEXIST)
		return CGROUP_NONE;
	cgroup->directory = openat(parent_directory, name, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	cgroup->events = cgroup->directory < 0 ? -1 : openat(cgroup->directory, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (cgroup->events < 0) {
		if (cgroup->directory >= 0)
			close(cgroup->directory);
		return CGROUP_NONE;
	}
	cgroup->is_taken = true;
	cgroup->is_left = false;
	return cgroup_count++;
}

/* A group for a command, or CGROUP_NONE. */
int cgroup_take(void)
{
	for (int at = 0; at < cgroup_count; at++)
		if (!cgroups[at].is_taken && !cgroups[at].is_left) {
			cgroups[at].is_taken = true;
			return at;
		}
	for (int look = 0; look < LOOKS_MAX && look < cgroup_count; look++) {
		struct cgroup *cgroup = &cgroups[next_look++ % cgroup_count];

		if (cgroup->is_left && is_empty(cgroup)) {
			cgroup->is_left = false;
			cgroup->is_taken = true;
			return (int)(cgroup - cgroups);
		}
	}
	return make();
}

int cgroup_directory(int cgroup)
{
	return cgroup == CGROUP_NONE ? -1 : cgroups[cgroup].directory;
}

void cgroup_kill(int cgroup)
{
	if (cgroup == CGROUP_NONE)
		return;
	int fd = openat(cgroups[cgroup].directory, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while (write(fd, "1", 1) < 0 && errno == EINTR)
		;
	close(fd);
}

void cgroup_release(int cgroup)
{
	if (cgroup == CGROUP_NONE)
		return;
	cgroups[cgroup].is_taken = false;
	cgroups[cgroup].is_left = !is_empty(&cgroups[cgroup]);
}
