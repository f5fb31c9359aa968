/*
 * Writing a file for the host: into a file without a name in the same directory, which gets its name when all of it is on
 * the disk. A worker's part: every function here may end the process.
 *
 * Always: whoever looks sees the old file or the whole new one; a worker that fails or is killed leaves nothing behind (on
 * file systems without nameless files, a hidden one). What is replaced leaves its mode and owner to the new file. Missing
 * directories are made.
 *
 * A symbolic link is followed, unless it leads from a disk into memory: whoever named a path on the disk would find the
 * file gone after the next stop. Who names a path in memory means it.
 */
#include "file.h"

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

#include "bulk.h"

#define LINKS_MAX 40
#define MODE_NEW 0644
#define MODE_NEW_DIRECTORY 0755
#define TEMPORARY_NAME_BYTES 48

struct target {
	char path[FILE_PATH_BYTES_MAX]; /* without links; its last parts need not exist */
	char *name;			/* the last part */
	int directory;
	bool exists;
	struct stat status; /* of what exists */
};

static bool is_memory(const char *path)
{
	struct statfs status;

	return statfs(path, &status) == 0 &&
	       (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

/* Adds a part to the path, or takes one away for `..`. */
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
	if (end + 1 + length >= FILE_PATH_BYTES_MAX)
		file_fail_errno(ENAMETOOLONG);
	path[end] = '/';
	memcpy(path + end + 1, part, length);
	path[end + 1 + length] = 0;
}

/* Takes the last part off again. */
static void cut_last(char *path)
{
	*strrchr(path, '/') = 0;
}

/*
 * Follows the links of `wanted` into `path` (empty for the root); what does not exist is taken as it stands. Returns whether
 * the first link stands on a disk; false without any link.
 */
static bool resolve(const char *wanted, char *path)
{
	static char rest[FILE_PATH_BYTES_MAX], link[FILE_PATH_BYTES_MAX], joined[2 * FILE_PATH_BYTES_MAX];
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
			continue; /* no link, or nothing at all */
		if (++links > LINKS_MAX)
			file_fail_errno(ELOOP);
		cut_last(path);
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

/* Makes the missing directories above the path. Returns the deepest one, opened. */
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

/* The deepest part of the path that exists lies in memory. */
static bool ends_in_memory(const char *path)
{
	char part[FILE_PATH_BYTES_MAX];
	struct stat status;

	strcpy(part, path);
	while (part[0] != 0 && lstat(part, &status) != 0)
		cut_last(part);
	return is_memory(part[0] == 0 ? "/" : part);
}

static void find_target(const struct file_request *request, struct target *target)
{
	bool is_from_disk = resolve(request->path, target->path);

	if (target->path[0] == 0)
		file_fail_errno(EISDIR);
	if (is_from_disk && ends_in_memory(target->path))
		file_fail("memory", target->path);
	target->exists = lstat(target->path, &target->status) == 0;
	if (target->exists && S_ISDIR(target->status.st_mode))
		file_fail_errno(EISDIR);
	if (target->exists && !S_ISREG(target->status.st_mode))
		file_fail("not_regular", "it is no regular file");
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

/* A file without a name; where that cannot be, a hidden one, whose name is put into `name`. */
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

static _Noreturn void give_up(const struct target *target, const char *name, int error)
{
	if (name[0] != 0)
		unlinkat(target->directory, name, 0);
	file_fail_errno(error);
}

/* 0 when all that came is in the file. */
static int take_content(int fd)
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

static int name_it(const struct target *target, int fd, const char *name)
{
	char path[sizeof("/proc/self/fd/") + 10];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, target->directory, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* Gives the file its name, in the place of what has it now. */
static int publish(const struct target *target, int fd, char *name)
{
	if (name[0] == 0) {
		int error = name_it(target, fd, target->name);

		if (error != EEXIST)
			return error;
		temporary_name(name);
		unlinkat(target->directory, name, 0);
		error = name_it(target, fd, name);
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
	/* The owner first: a change of it takes set-user-id bits away. */
	if (fchown(fd, uid, gid) != 0 || fchmod(fd, mode) != 0)
		give_up(&target, name, errno);
	file_say("ready\n", 6);
	int error = bulk_is_open() ? bulk_take(fd) : take_content(fd);
	if (error == 0 && fsync(fd) != 0)
		error = errno;
	if (error == 0)
		error = publish(&target, fd, name);
	if (error != 0)
		give_up(&target, name, error);
	fsync(target.directory);
	file_done();
}
