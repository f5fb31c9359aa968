/*
 * Puts a process into its jail and then becomes the program that runs there: the last step of the launch of a
 * VMM, and of a program that reads an image.
 *
 *     jail STEP... -- PROGRAM ARGUMENT...
 *
 *     group FILE        joins a control group by its cgroup.procs; skipped if that fails
 *     net               a new, empty network namespace
 *     read FROM TO      makes a file or directory of the host visible, read-only
 *     data FROM TO      the same, but nothing in it can be executed
 *     write FROM TO     makes it visible and writable, but nothing in it can be executed
 *     node PATH MAJOR MINOR   a device, for all users
 *     link TARGET PATH  a symbolic link
 *     env NAME=VALUE    a variable of the environment, which is empty otherwise
 *     limit NAME VALUE a resource limit that the process cannot raise; a lower one stays that the starter
 *     cannot raise
 *     user ID           user and group; without it they do not change
 *     keep NUMBER       a capability that the starter has
 *     users             a new user namespace with the starter's ids: a capability has no effect outside of it;
 *     skipped where the kernel refuses one
 *     filter            refuses system calls (filter.c)
 *     score NUMBER      which processes the out-of-memory killer kills first; without it 500
 *     batch             the scheduler's batch class
 *     small-pages       no huge pages, whatever the program requests
 *     no-files          can make sockets, but no files and directories, where the kernel has Landlock
 *     dies              killed when the process that started it ends
 *
 * The program sees only what the steps make visible: its root is a read-only file system in memory that
 * belongs to root. There is no /proc in it, so it cannot name other processes of the host. It has only the
 * privileges that it keeps, can gain none, and has only the standard descriptors. It does not
 * wait for a reader of what it prints into a pipe.
 *
 * Always: the process that runs this becomes the program. If a step fails, it exits with 1 and a line on
 * standard error, and the program does not run.
 */
#define _GNU_SOURCE
#include "filter.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHOWN_MAX 64
#define ENVIRONMENT_MAX 16
/*
 * Where the new root is assembled. Every host has this directory, and nothing else in this process uses it.
 */
#define NEW_ROOT "/tmp"
/* The kernel's out-of-memory killer kills a VMM before what manages it. */
#define OOM_SCORE "500"

struct shown {
	const char *kind, *from, *to, *extra;
	int fd;
};

static struct shown shown[SHOWN_MAX];
static size_t shown_count;
static char *environment[ENVIRONMENT_MAX + 1];
static size_t environment_count;
static int has_own_net, has_own_users, has_filter, is_batch, has_small_pages, makes_no_files, dies;
static long user = -1;
static const char *score = OOM_SCORE;
/* A bit for each capability that is kept. */
static unsigned long long kept;
static pid_t mapper;
static int to_mapper;

static void fail(const char *what, const char *which)
{
	fprintf(stderr, "jail: %s %s: %s\n", what, which, strerror(errno));
	exit(1);
}

static void refuse(const char *what, const char *which)
{
	fprintf(stderr, "jail: %s %s\n", what, which);
	exit(1);
}

static long number(const char *text)
{
	char *end;

	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno != 0 || *end != '\0' || end == text || value < 0)
		refuse("not a number:", text);
	return value;
}

/* Best effort: ignores a file that does not exist or cannot be written. */
static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	ssize_t written = write(fd, text, strlen(text));
	(void)written;
	close(fd);
}

static void limit(const char *name, const char *value)
{
	static const struct {
		const char *name;
		int resource;
	} limits[] = {
		{"core", RLIMIT_CORE},
		{"cpu", RLIMIT_CPU},
		{"data", RLIMIT_DATA},
		{"fsize", RLIMIT_FSIZE},
		{"nofile", RLIMIT_NOFILE},
		{"nproc", RLIMIT_NPROC},
	};
	struct rlimit both = {.rlim_cur = (rlim_t)number(value), .rlim_max = (rlim_t)number(value)}, starters;

	for (size_t at = 0; at < sizeof(limits) / sizeof(*limits); at++) {
		if (strcmp(limits[at].name, name) != 0)
			continue;
		if (setrlimit(limits[at].resource, &both) == 0)
			return;
		/*
		 * Not even root may exceed the starter's limit where it lacks CAP_SYS_RESOURCE; the lower one is enough, or
		 * the program says so.
		 */
		if (errno != EPERM || getrlimit(limits[at].resource, &starters) != 0 || starters.rlim_max > both.rlim_max)
			fail("limit", name);
		starters.rlim_cur = starters.rlim_max;
		if (setrlimit(limits[at].resource, &starters) != 0)
			fail("limit", name);
		return;
	}
	refuse("unknown limit:", name);
}

static void show(const char *kind, const char *from, const char *to, const char *extra)
{
	if (shown_count == SHOWN_MAX)
		refuse("too many visible files:", to);
	shown[shown_count++] = (struct shown){.kind = kind, .from = from, .to = to, .extra = extra, .fd = -1};
}

static void open_source(struct shown *item)
{
	int is_node = strcmp(item->kind, "node") == 0;
	const char *source = is_node ? item->to : item->from;

	if (strcmp(item->kind, "link") == 0)
		return;
	item->fd = open(source, O_PATH | O_CLOEXEC);
	if (item->fd < 0 && !is_node)
		fail("cannot open", source);
}

static int is_view(const char *name)
{
	return strcmp(name, "read") == 0 || strcmp(name, "data") == 0 || strcmp(name, "write") == 0 ||
	       strcmp(name, "link") == 0;
}

static void keep(const char *text)
{
	long capability = number(text);

	if (capability > 63)
		refuse("not a capability:", text);
	kept |= 1ULL << capability;
}

/* Parses one step. Returns its number of arguments. */
static int step(char **arguments, int count)
{
	const char *name = arguments[0];
	int has_one = count > 1, has_two = count > 2, has_three = count > 3;

	if (strcmp(name, "net") == 0)
		has_own_net = 1;
	else if (strcmp(name, "batch") == 0)
		is_batch = 1;
	else if (strcmp(name, "small-pages") == 0)
		has_small_pages = 1;
	else if (strcmp(name, "no-files") == 0)
		makes_no_files = 1;
	else if (strcmp(name, "dies") == 0)
		dies = 1;
	else if (strcmp(name, "users") == 0)
		has_own_users = 1;
	else if (strcmp(name, "filter") == 0)
		has_filter = 1;
	else if (strcmp(name, "keep") == 0 && has_one)
		return keep(arguments[1]), 2;
	else if (strcmp(name, "score") == 0 && has_one)
		return score = arguments[1], 2;
	else if (strcmp(name, "group") == 0 && has_one)
		return put(arguments[1], "0"), 2;
	else if (strcmp(name, "user") == 0 && has_one)
		return user = number(arguments[1]), 2;
	else if (strcmp(name, "env") == 0 && has_one && environment_count < ENVIRONMENT_MAX)
		return environment[environment_count++] = arguments[1], 2;
	else if (strcmp(name, "limit") == 0 && has_two)
		return limit(arguments[1], arguments[2]), 3;
	else if (is_view(name) && has_two)
		return show(name, arguments[1], arguments[2], NULL), 3;
	else if (strcmp(name, "node") == 0 && has_three)
		return show(name, arguments[2], arguments[1], arguments[3]), 4;
	else
		refuse("unknown step:", name);
	return 1;
}

/* Creates the directories on the way to a path. */
static void make_way(const char *path)
{
	char way[PATH_MAX];

	if ((size_t)snprintf(way, sizeof(way), "%s", path) >= sizeof(way))
		refuse("too long:", path);
	for (char *slash = strchr(way + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(way, 0755) != 0 && errno != EEXIST)
			fail("mkdir", way);
		*slash = '/';
	}
}

/* Makes an open file or directory visible. Restrictions of its mount are kept. */
static void bind(int fd, const char *to, unsigned long flags)
{
	char source[64];
	struct stat status;
	struct statvfs mounted;

	if (fstat(fd, &status) != 0)
		fail("fstat", to);
	if (S_ISDIR(status.st_mode)) {
		if (mkdir(to, 0755) != 0 && errno != EEXIST)
			fail("mkdir", to);
	} else {
		int file = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (file < 0)
			fail("create", to);
		close(file);
	}
	snprintf(source, sizeof(source), "/proc/self/fd/%d", fd);
	if (mount(source, to, NULL, MS_BIND, NULL) != 0 || statvfs(to, &mounted) != 0)
		fail("bind", to);
	/* statvfs and mount use the same flag values. */
	flags |= mounted.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC);
	if (mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | flags, NULL) != 0)
		fail("remount", to);
}

static void make(const struct shown *item)
{
	char to[PATH_MAX];

	if ((size_t)snprintf(to, sizeof(to), "%s%s", NEW_ROOT, item->to) >= sizeof(to))
		refuse("too long:", item->to);
	make_way(to);
	if (strcmp(item->kind, "link") == 0) {
		if (symlink(item->from, to) != 0)
			fail("link", to);
	} else if (strcmp(item->kind, "read") == 0) {
		bind(item->fd, to, MS_RDONLY | MS_NOSUID | MS_NODEV);
	} else if (strcmp(item->kind, "data") == 0) {
		bind(item->fd, to, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);
	} else if (strcmp(item->kind, "write") == 0) {
		bind(item->fd, to, MS_NOSUID | MS_NODEV | MS_NOEXEC);
	} else {
		dev_t device = makedev((unsigned)number(item->from), (unsigned)number(item->extra));
		if (mknod(to, S_IFCHR | 0666, device) == 0) {
			if (chmod(to, 0666) != 0)
				fail("chmod", to);
		} else if (errno == EPERM && item->fd >= 0) {
			/* Only root can create devices; otherwise the host's device is made visible. */
			bind(item->fd, to, MS_NOSUID | MS_NOEXEC);
		} else {
			fail("mknod", to);
		}
	}
}

static void enter(void)
{
	if (unshare(CLONE_NEWNS | CLONE_NEWIPC | (has_own_net ? CLONE_NEWNET : 0)) != 0)
		fail("unshare", "namespaces");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		fail("mount", "/");
	/* Opened in this namespace, before a mount can hide a source. */
	for (size_t at = 0; at < shown_count; at++)
		open_source(&shown[at]);
	if (mount("flotilla", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=256k") != 0)
		fail("mount", NEW_ROOT);
	for (size_t at = 0; at < shown_count; at++)
		make(&shown[at]);
	if (mount(NULL, NEW_ROOT, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) != 0)
		fail("remount", NEW_ROOT);
	if (chdir(NEW_ROOT) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
		fail("pivot_root", NEW_ROOT);
}

/* The program can still write to the files that it is given, each up to the limit of file sizes. */
static void refuse_new_files(void)
{
	struct landlock_ruleset_attr attributes = {
	    .handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SYM |
	                         LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK,
	};
	long ruleset = syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0);

	if (ruleset < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
		return;
	if (ruleset < 0 || syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
		fail("refuse", "new files");
}

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the numbers of system calls are not known for this architecture"
#endif
/* Newer architectures have only openat. */
#ifndef SYS_open
#define SYS_open SYS_openat
#endif
/* Calls with 32-bit pointers have numbers from here on. */
#define SHORT_CALLS 0x40000000
#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | BPF_K | (test), value, yes, no)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)

/* Refuses files without a name, which Landlock does not know, and openat2, whose flags are in memory. */
static void refuse_unnamed_files(void)
{
	struct sock_filter calls[] = {
		FIELD(arch),
		IF(BPF_JEQ, ARCHITECTURE, 1, 0),
		RETURN(SECCOMP_RET_KILL_PROCESS),
		FIELD(nr),
		IF(BPF_JGE, SHORT_CALLS, 8, 0),
		IF(BPF_JEQ, SYS_openat2, 7, 0),
		IF(BPF_JEQ, SYS_openat, 3, 0),
		IF(BPF_JEQ, SYS_open, 0, 6),
		FIELD(args[1]),
		BPF_STMT(BPF_JMP | BPF_JA, 1),
		FIELD(args[2]),
		IF(BPF_JSET, O_TMPFILE & ~O_DIRECTORY, 0, 2),
		RETURN(SECCOMP_RET_ERRNO | EOPNOTSUPP),
		RETURN(SECCOMP_RET_ERRNO | ENOSYS),
		RETURN(SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(calls) / sizeof(*calls), .filter = calls};

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
		fail("refuse", "unnamed files");
}

/*
 * The reader may have ended or be slow: what the program prints into a full pipe is lost. It does not wait.
 */
static void print_without_waiting(void)
{
	for (int fd = 1; fd <= 2; fd++) {
		struct stat status;
		int flags = fcntl(fd, F_GETFL);

		if (fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode))
			continue;
		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
			fail("set", "its output");
	}
}

/*
 * Maps this process's ids to themselves in the process whose directory of /proc is given. Returns 0, or -1.
 */
static int map_ids(int process, const char *name)
{
	char path[64], map[4096];
	size_t length = 0;
	int theirs = openat(process, name, O_WRONLY | O_CLOEXEC), used;
	FILE *ours;

	snprintf(path, sizeof(path), "/proc/self/%s", name);
	if (theirs < 0 || (ours = fopen(path, "re")) == NULL)
		return -1;
	for (unsigned long inside, count; fscanf(ours, "%lu %*u %lu", &inside, &count) == 2; length += (size_t)used) {
		used = snprintf(map + length, sizeof(map) - length, "%lu %lu %lu\n", inside, inside, count);
		if (used < 0 || (size_t)used >= sizeof(map) - length)
			return -1;
	}
	return write(theirs, map, length) == (ssize_t)length ? 0 : -1;
}

/*
 * Starts a process that maps the ids of the new user namespace from outside, because inside no process may.
 * It waits for a byte, which is sent when there is such a namespace.
 */
static void start_mapper(void)
{
	int ends[2], process = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char byte;

	if (process < 0 || pipe2(ends, O_CLOEXEC) != 0)
		fail("prepare", "a user namespace");
	mapper = fork();
	if (mapper < 0)
		fail("fork", "mapper");
	if (mapper == 0) {
		close(ends[1]);
		if (read(ends[0], &byte, 1) != 1)
			_exit(0);
		_exit(map_ids(process, "uid_map") != 0 || map_ids(process, "gid_map") != 0);
	}
	close(process);
	close(ends[0]);
	to_mapper = ends[1];
}

static void enter_users(void)
{
	int status;

	if (unshare(CLONE_NEWUSER) == 0 && write(to_mapper, "", 1) != 1)
		fail("map", "ids");
	close(to_mapper);
	if (waitpid(mapper, &status, 0) != mapper || status != 0)
		refuse("cannot map", "ids");
}

static void drop_privileges(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2];
	int is_set;

	for (unsigned long capability = 0; (is_set = prctl(PR_CAPBSET_READ, capability, 0, 0, 0)) >= 0; capability++) {
		if (is_set && (kept >> capability & 1) == 0 && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
			fail("drop", "a capability");
	}
	if (user >= 0) {
		if (setgroups(0, NULL) != 0 || setresgid((gid_t)user, (gid_t)user, (gid_t)user) != 0 ||
		    setresuid((uid_t)user, (uid_t)user, (uid_t)user) != 0)
			fail("become", "user");
	}
	if (syscall(SYS_capget, &header, sets) != 0)
		fail("read", "capabilities");
	for (int half = 0; half < 2; half++) {
		sets[half].permitted &= (unsigned)(kept >> 32 * half);
		sets[half].effective = sets[half].permitted;
		sets[half].inheritable = 0;
	}
	if (syscall(SYS_capset, &header, sets) != 0)
		fail("drop", "capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		fail("set", "no_new_privs");
	if (has_filter && refuse_calls() != 0)
		fail("filter", "system calls");
}

int main(int count, char **arguments)
{
	int at = 1;

	/*
	 * With a stricter one of the starter, the program's user could not enter the directories that are made here.
	 */
	umask(022);
	/* Requested last, because the kernel clears it on a change of user. */
	pid_t starter = getppid();
	while (at < count && strcmp(arguments[at], "--") != 0)
		at += step(arguments + at, count - at);
	if (at + 1 >= count)
		refuse("no program after", "--");
	put("/proc/self/oom_score_adj", score);
	if (has_own_users)
		start_mapper();
	enter();
	if (is_batch && sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}) != 0)
		fail("become", "batch");
	/* The program inherits this. */
	if (has_small_pages && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
		fail("refuse", "huge pages");
	if (has_own_users)
		enter_users();
	drop_privileges();
	if (makes_no_files)
		refuse_new_files(), refuse_unnamed_files();
	/* Exceeding the limit of file sizes makes the write fail instead of killing the process. */
	signal(SIGXFSZ, SIG_IGN);
	if (dies) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
			fail("set", "death signal");
		if (getppid() != starter)
			return 1;
	}
	if (syscall(SYS_close_range, 3U, ~0U, 0) != 0)
		fail("close", "descriptors");
	print_without_waiting();
	execve(arguments[at + 1], arguments + at + 1, environment);
	fail("run", arguments[at + 1]);
}
