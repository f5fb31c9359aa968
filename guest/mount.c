/*
 * Mounts: the few for booting, the machine's root, and those that Linux programs expect.
 *
 * Always: every step may be repeated, so a host that lost the answer to a configuration may send it again.
 * Nothing of the machine's disk is read before mount_root(): until then the guest may be saved as a template
 * and get another disk.
 */
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent-limits.h"
#include "grow.h"
#include "log.h"

#define NEW_ROOT "/newroot"
#define SIZE_POLL_US 500
#define SIZE_POLLS_MAX 10000 /* at least 5 s */

struct mount_point {
	const char *type;
	const char *path;
	unsigned long flags;
	const char *options;
};

static const struct mount_point machine_mounts[] = {
	{"proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
	{"sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
	{"devtmpfs", "/dev", MS_NOSUID, "mode=0755"},
	{"devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"},
	{"tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777"},
	{"tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755"},
	{"tmpfs", "/tmp", MS_NOSUID | MS_NODEV, "mode=1777"},
	{"cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
};

static bool has_root;

/* Creates the directory and its parents. Returns 0 also when it exists. */
int make_directory(const char *path)
{
	char part[PATH_BYTES_MAX];
	size_t length = strlen(path);

	if (length >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t at = 1; at <= length; at++) {
		if (path[at] != '/' && path[at] != 0)
			continue;
		memcpy(part, path, at);
		part[at] = 0;
		if (mkdir(part, 0755) != 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int mount_one(const struct mount_point *point)
{
	/* sysfs creates its directories itself and refuses mkdir. */
	if (mkdir(point->path, 0755) != 0 && errno != EEXIST && errno != EPERM)
		return -errno;
	if (mount(point->type, point->path, point->type, point->flags, point->options) != 0 && errno != EBUSY)
		return -errno;
	return 0;
}

/* The mounts that the agent needs before the guest is configured. */
int mount_early(void)
{
	for (size_t at = 0; at < 3; at++) {
		int error = mount_one(&machine_mounts[at]);
		if (error != 0)
			return error;
	}
	return 0;
}

static int device_size(const char *device, uint64_t *bytes)
{
	int fd = open(device, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	int error = ioctl(fd, BLKGETSIZE64, bytes) == 0 ? 0 : -errno;
	close(fd);
	return error;
}

/*
 * The disk may just have been attached to a waiting guest: its new size arrives as an interrupt, which may
 * come later.
 */
static int wait_for_size(const char *device, uint64_t wanted)
{
	for (int poll = 0; poll < SIZE_POLLS_MAX; poll++) {
		uint64_t bytes;
		int error = device_size(device, &bytes);

		if (error != 0 || bytes == wanted)
			return error;
		usleep(SIZE_POLL_US);
	}
	return -ENXIO;
}

/* Makes the device's ext4 file system the root of the agent and of all commands. */
int mount_root(const char *device, uint64_t bytes)
{
	int error;

	if (has_root)
		return 0;
	if (bytes != 0) {
		error = wait_for_size(device, bytes);
		if (error != 0)
			return error;
	}
	if (mkdir(NEW_ROOT, 0755) != 0 && errno != EEXIST)
		return -errno;
	/* Inode tables are not zeroed in the background: what was never written reads as zeros. */
	if (mount(device, NEW_ROOT, "ext4", 0, "noinit_itable") != 0 && errno != EBUSY)
		return -errno;
	error = grow_first(device, NEW_ROOT);
	if (error != 0)
		log_line("cannot grow the file system of", device, error);
	if (chdir(NEW_ROOT) != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0)
		return -errno;
	grow_in_background();
	has_root = true;
	return 0;
}

static int link_device(const char *target, const char *path)
{
	return symlink(target, path) == 0 || errno == EEXIST ? 0 : -errno;
}

int mount_machine(void)
{
	static bool is_mounted;

	if (is_mounted)
		return 0;
	for (size_t at = 0; at < sizeof(machine_mounts) / sizeof(machine_mounts[0]); at++) {
		int error = mount_one(&machine_mounts[at]);
		if (error != 0) {
			log_line("cannot mount", machine_mounts[at].path, error);
			return error;
		}
	}
	is_mounted = true;
	int error = link_device("/proc/self/fd", "/dev/fd");
	if (error == 0)
		error = link_device("/proc/self/fd/0", "/dev/stdin");
	if (error == 0)
		error = link_device("/proc/self/fd/1", "/dev/stdout");
	if (error == 0)
		error = link_device("/proc/self/fd/2", "/dev/stderr");
	return error;
}

/* Flushes everything to the disk and leaves the root file system as after an unmount. */
void mount_sync_and_close(void)
{
	sync();
	if (has_root && mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0)
		log_line("cannot make the root read-only; it is synced", NULL, -errno);
}
