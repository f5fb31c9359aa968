/*
 * A control group for each command, so that killing the command reaches every descendant, whatever it did to escape.
 *
 * Owns the directories `<parent>/flotilla-<n>` and two descriptors for each.
 *
 * Always: a group is handed out only when the kernel says that nothing lives in it. Groups are used again instead of
 * removed: making one takes longer than starting a process. What a command left running keeps its group; such groups are
 * looked at again before a new one is made. A group that was killed is not used again: newer kernels (6.18 seen) kill what
 * is started in it ever after. Without cgroup version 2 there are none, and commands are killed by process
 * group only.
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
#define LOOKS_MAX 8 /* how many left groups are looked at before a new one is made */

struct cgroup {
	int directory;
	int events; /* cgroup.events: says whether anything lives in it */
	bool is_taken;
	bool is_left;	/* its command has ended, and something of it may live on */
	bool is_killed;
	int name;
};

static struct cgroup cgroups[CGROUPS_MAX];
static int cgroup_count;
static int next_look;
static int last_name;
static int parent_directory = -1;
static long agent_pid; /* in the names: several agents of a test share a parent */

/* Makes the groups below this directory, which is on a cgroup2 file system; without it there are none. Once is enough. */
void cgroup_use(const char *parent)
{
	if (parent_directory >= 0)
		return;
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

/* Whether anything of the command lives; without a group nobody knows, and nothing is said to. */
bool cgroup_is_populated(int cgroup)
{
	return cgroup != CGROUP_NONE && !is_empty(&cgroups[cgroup]);
}

static void name_of(int number, char *name, size_t size)
{
	snprintf(name, size, "flotilla-%ld-%d", agent_pid, number);
}

static int make(struct cgroup *cgroup)
{
	char name[NAME_BYTES_MAX];
	int directory, events;

	name_of(++last_name, name, sizeof(name));
	if (mkdirat(parent_directory, name, 0755) != 0 && errno != EEXIST)
		return -errno;
	directory = openat(parent_directory, name, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (directory < 0)
		return -errno;
	events = openat(directory, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (events < 0) {
		close(directory);
		return -errno;
	}
	*cgroup = (struct cgroup){.directory = directory, .events = events, .is_taken = true, .name = last_name};
	return 0;
}

/* Puts a fresh group in the place of one that was killed. */
static int make_again(struct cgroup *cgroup)
{
	char name[NAME_BYTES_MAX];

	name_of(cgroup->name, name, sizeof(name));
	if (unlinkat(parent_directory, name, AT_REMOVEDIR) != 0)
		return -errno;
	struct cgroup old = *cgroup;
	int error = make(cgroup);
	if (error != 0)
		return error;
	close(old.directory);
	close(old.events);
	return 0;
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

		if (!cgroup->is_left || !is_empty(cgroup))
			continue;
		if (cgroup->is_killed && make_again(cgroup) != 0)
			continue;
		cgroup->is_left = false;
		cgroup->is_taken = true;
		return (int)(cgroup - cgroups);
	}
	if (parent_directory < 0 || cgroup_count == CGROUPS_MAX || make(&cgroups[cgroup_count]) != 0)
		return CGROUP_NONE;
	return cgroup_count++;
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

/* Removes every group that nothing lives in. */
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
	cgroups[cgroup].is_taken = false;
	cgroups[cgroup].is_left = cgroups[cgroup].is_killed || !is_empty(&cgroups[cgroup]);
}
