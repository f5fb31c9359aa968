/*
 * Writes a file for the host: into an unnamed file in the same directory, which gets its name when its
 * content is complete and on the disk. Part of the file worker: every function here may end the process.
 *
 * Always:
 * - readers see the old file or the complete new one;
 * - a worker that fails or is killed leaves nothing (a hidden file on file systems without unnamed files);
 * - the new file gets mode and owner of the one it replaces;
 * - missing directories are created.
 *
 * Symbolic links are followed, except from a disk into memory: a caller who named a path on the disk would
 * lose the file at the next stop. A path that is in memory itself is accepted.
 */
#include "file-write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "agent-limits.h"
#include "bulk.h"

#define LINKS_MAX 40
#define MODE_NEW 0644
#define MODE_NEW_DIRECTORY 0755
#define TEMPORARY_NAME_BYTES 48

struct target {
	char path[PATH_BYTES_MAX]; /* with links resolved; its last components need not exist */
	char *name;			/* the last component */
	int directory;
	bool exists;
	struct stat status; /* if it exists */
};

static bool is_memory(const char *path)
{
	struct statfs status;

	return statfs(path, &status) == 0 &&
	       (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

/* Appends a component to the path; `..` removes one. */
static void append(char *path, const char *part, size_t length)
{
	size_t end = strlen(path);

	if (length == 0 || (length == 1 && part[0] == '.'))
		return;
	if (length == 2 && part[0] == '.' && part[1] == '.') {
		char *slash = strrchr(path, '/');

		if (slash != NULL)
			*slash = 0;
		return;
	}
	if (end + 1 + length >= PATH_BYTES_MAX)
		file_fail_errno(ENAMETOOLONG);
	path[end] = '/';
	memcpy(path + end + 1, part, length);
	path[end + 1 + length] = 0;
}

/* Removes the last component. */
static void remove_last(char *path)
{
	*strrchr(path, '/') = 0;
}

/*
 * Resolves the links of `wanted` into `path` (empty for the root); components that do not exist are kept.
 * Returns whether the first link is on a disk; false without links.
 */
static bool resolve(const char *wanted, char *path)
{
	static char rest[PATH_BYTES_MAX], link[PATH_BYTES_MAX], joined[2 * PATH_BYTES_MAX];
	bool is_from_disk = false;
	int links = 0;

	if (strlen(wanted) >= sizeof(rest))
		file_fail_errno(ENAMETOOLONG);
	strcpy(rest, wanted);
	path[0] = 0;
	for (char *at = rest; *at != 0;) {
		size_t length = strcspn(at, "/");
		size_t before = strlen(path);

		append(path, at, length);
		at += length + (at[length] == '/');
		if (strlen(path) <= before)
			continue;
		ssize_t size = readlink(path, link, sizeof(link) - 1);
		if (size < 0)
			continue; /* not a link, or does not exist */
		if (++links > LINKS_MAX)
			file_fail_errno(ELOOP);
		remove_last(path);
		if (links == 1)
			is_from_disk = !is_memory(path[0] == 0 ? "/" : path);
		link[size] = 0;
		if (link[0] == '/')
			path[0] = 0;
		if (snprintf(joined, sizeof(joined), "%s/%s", link, at) >= (int)sizeof(rest))
			file_fail_errno(ENAMETOOLONG);
		strcpy(rest, joined);
		at = rest;
	}
	return is_from_disk;
}

/* Creates the missing directories of the path. Returns the last one, opened. */
static int open_directory(const struct file_request *request, char *path)
{
	char *last = strrchr(path, '/');

	for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(path, MODE_NEW_DIRECTORY) == 0) {
			if (chown(path, request->uid, request->gid) != 0)
				file_fail_errno(errno);
		} else if (errno != EEXIST) {
			file_fail_errno(errno);
		}
		*slash = '/';
	}
	*last = 0;
	int directory = open(path[0] == 0 ? "/" : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		file_fail_errno(errno);
	*last = '/';
	return directory;
}

/* Whether the deepest existing directory of the path is in memory. */
static bool ends_in_memory(const char *path)
{
	char part[PATH_BYTES_MAX];
	struct stat status;

	strcpy(part, path);
	while (part[0] != 0 && lstat(part, &status) != 0)
		remove_last(part);
	return is_memory(part[0] == 0 ? "/" : part);
}

static void find_target(const struct file_request *request, struct target *target)
{
	bool is_from_disk = resolve(request->path, target->path);

	if (target->path[0] == 0)
		file_fail_errno(EISDIR);
	bool is_in_memory = ends_in_memory(target->path);
	if (is_from_disk && is_in_memory)
		file_fail("memory", target->path);
	file_is_in_memory(is_in_memory);
	target->exists = lstat(target->path, &target->status) == 0;
	if (target->exists && S_ISDIR(target->status.st_mode))
		file_fail_errno(EISDIR);
	if (target->exists && !S_ISREG(target->status.st_mode))
		file_fail("not_regular", "it is not a regular file");
	target->directory = open_directory(request, target->path);
	target->name = strrchr(target->path, '/') + 1;
	if (strlen(target->name) > NAME_MAX)
		file_fail_errno(ENAMETOOLONG);
}

static void temporary_name(char *name)
{
	static unsigned tries;

	snprintf(name, TEMPORARY_NAME_BYTES, ".flotilla-%d-%u", (int)getpid(), tries++);
}

/* Opens an unnamed file; where that is not supported, a hidden one, whose name is put into `name`. */
static int open_new(const struct target *target, char *name)
{
	int fd = openat(target->directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	name[0] = 0;
	if (fd >= 0)
		return fd;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
		file_fail_errno(errno);
	temporary_name(name);
	unlinkat(target->directory, name, 0);
	fd = openat(target->directory, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		file_fail_errno(errno);
	return fd;
}

static _Noreturn void discard(const struct target *target, const char *name, int error)
{
	if (name[0] != 0)
		unlinkat(target->directory, name, 0);
	file_fail_errno(error);
}

/* Writes the content from stdin. Returns 0 when all of it is in the file, or an errno. */
static int receive_content(int fd)
{
	static uint8_t buffer[FILE_BUFFER_BYTES];

	for (;;) {
		ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));

		if (got == 0)
			return 0;
		if (got < 0 && errno != EINTR)
			return errno;
		for (ssize_t done = 0; done < got;) {
			ssize_t written = write(fd, buffer + done, (size_t)(got - done));

			if (written < 0 && errno != EINTR)
				return errno;
			if (written > 0)
				done += written;
		}
	}
}

static int link_file(const struct target *target, int fd, const char *name)
{
	char path[sizeof("/proc/self/fd/") + 10];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, target->directory, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* Gives the file its name, replacing the existing file. */
static int publish(const struct target *target, int fd, char *name)
{
	if (name[0] == 0) {
		int error = link_file(target, fd, target->name);

		if (error != EEXIST)
			return error;
		temporary_name(name);
		unlinkat(target->directory, name, 0);
		error = link_file(target, fd, name);
		if (error != 0)
			return error;
	}
	return renameat(target->directory, name, target->directory, target->name) == 0 ? 0 : errno;
}

_Noreturn void file_write(const struct file_request *request)
{
	static struct target target;
	char name[TEMPORARY_NAME_BYTES];

	find_target(request, &target);
	int fd = open_new(&target, name);
	uid_t uid = target.exists ? target.status.st_uid : request->uid;
	gid_t gid = target.exists ? target.status.st_gid : request->gid;
	mode_t mode = target.exists ? target.status.st_mode & 07777 : MODE_NEW;
	/* The owner first, because changing it clears set-user-id bits. */
	if (fchown(fd, uid, gid) != 0 || fchmod(fd, mode) != 0)
		discard(&target, name, errno);
	file_send("ready\n", 6);
	int error = bulk_is_open() ? bulk_receive(fd) : receive_content(fd);
	if (error == 0 && fsync(fd) != 0)
		error = errno;
	if (error == 0)
		error = publish(&target, fd, name);
	if (error != 0)
		discard(&target, name, error);
	fsync(target.directory);
	file_done();
}
