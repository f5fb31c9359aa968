/*
 * Lets the machine's file system fill its disk, when that is larger than the image it was made from.
 *
 * The first AT_ONCE_BYTES are there before the machine runs; the rest follows in the background, a step at a time, because
 * a file system of 16 TiB has 131,072 groups to describe, which takes an emulated processor a minute or more.
 *
 * Always: a guest that ends in the middle has a whole file system of some size, and the next boot goes on. Nothing is
 * written but descriptions of groups: inode tables of a new disk read as zeros already. A kernel that is told not to
 * initialize them in the background does it at once instead, gigabytes of writes, so it is told to do it very slowly,
 * and at the end not to.
 */
#include "grow.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

/* From the kernel's fs/ext4/ext4.h, which is not among its headers for programs. */
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)
#define SUPERBLOCK_OFFSET 1024
#define SUPERBLOCK_BYTES 1024
#define SUPERBLOCK_MAGIC 0xef53

#define GIB (UINT64_C(1) << 30)
#define AT_ONCE_BYTES (256 * GIB)
/* The groups that keep their metadata together (node/src/images/workshop.ts): their bitmaps begin where they begin. */
#define STEP_BYTES (32 * GIB)
#define BITMAPS_BYTES (3U << 20)
#define READ_BYTES (1U << 20)

struct growth {
	int device;
	int root;
	uint64_t block_bytes;
	uint64_t bytes;
	uint64_t device_bytes;
};

static struct growth growth = {.device = -1, .root = -1};

static uint64_t number_at(const uint8_t *bytes, size_t size)
{
	uint64_t number = 0;

	while (size-- > 0)
		number = number << 8 | bytes[size];
	return number;
}

/* The size of the file system that is mounted from the device. */
static int read_superblock(struct growth *of)
{
	uint8_t bytes[SUPERBLOCK_BYTES];

	if (pread(of->device, bytes, sizeof(bytes), SUPERBLOCK_OFFSET) != (ssize_t)sizeof(bytes))
		return -EIO;
	uint64_t log_block_bytes = number_at(bytes + 0x18, 4);
	if (number_at(bytes + 0x38, 2) != SUPERBLOCK_MAGIC || log_block_bytes > 6)
		return -EINVAL;
	of->block_bytes = UINT64_C(1024) << log_block_bytes;
	of->bytes = (number_at(bytes + 0x150, 4) << 32 | number_at(bytes + 0x04, 4)) * of->block_bytes;
	return 0;
}

/*
 * The kernel reads the bitmaps of each new group, one block at a time, and waits for each; here those of a whole step come
 * in a few large reads before it asks. They are of no use afterwards.
 */
static void advise_bitmaps(const struct growth *of, uint64_t step, int advice)
{
	if (step % STEP_BYTES != 0)
		return;
	for (uint64_t at = 0; at < BITMAPS_BYTES; at += READ_BYTES)
		posix_fadvise(of->device, (off_t)(step + at), READ_BYTES, advice);
}

/* One step towards `to`. */
static int grow_once(struct growth *of, uint64_t to)
{
	uint64_t from = of->bytes;
	uint64_t end = (from / STEP_BYTES + 1) * STEP_BYTES;
	uint64_t blocks = (end < to ? end : to) / of->block_bytes;

	advise_bitmaps(of, from, POSIX_FADV_WILLNEED);
	int error = ioctl(of->root, EXT4_IOC_RESIZE_FS, &blocks) == 0 ? 0 : -errno;
	advise_bitmaps(of, from, POSIX_FADV_DONTNEED);
	of->bytes = blocks * of->block_bytes;
	return error;
}

static int grow_to(struct growth *of, uint64_t to)
{
	int error = 0;

	while (error == 0 && of->bytes + of->block_bytes <= to)
		error = grow_once(of, to);
	return error;
}

static void initialize_tables(const char *mount_path, const char *option)
{
	if (mount(NULL, mount_path, NULL, MS_REMOUNT, option) != 0)
		log_line("cannot remount with", option, -errno);
}

static bool has_room(const struct growth *of)
{
	return of->bytes + of->block_bytes <= of->device_bytes;
}

static void close_growth(void)
{
	if (growth.device >= 0)
		close(growth.device);
	if (growth.root >= 0)
		close(growth.root);
	growth.device = growth.root = -1;
}

static int open_growth(const char *device, const char *root)
{
	growth.device = open(device, O_RDONLY | O_CLOEXEC);
	if (growth.device < 0)
		return -errno;
	growth.root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (growth.root < 0 || ioctl(growth.device, BLKGETSIZE64, &growth.device_bytes) != 0)
		return -errno;
	return read_superblock(&growth);
}

/* Grows the file system that is mounted at `root` to what is needed at once. What then remains is grow_the_rest()'s. */
int grow_at_once(const char *device, const char *root)
{
	int error = open_growth(device, root);

	if (error == 0 && has_room(&growth)) {
		initialize_tables(root, "init_itable=1000");
		error = grow_to(&growth, growth.device_bytes < AT_ONCE_BYTES ? growth.device_bytes : AT_ONCE_BYTES);
		if (error == 0 && has_room(&growth))
			return 0;
		initialize_tables(root, "noinit_itable");
	}
	close_growth();
	return error;
}

static _Noreturn void be_the_child(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, "disk-growth");
	setpriority(PRIO_PROCESS, 0, 19);
	int error = grow_to(&growth, growth.device_bytes);
	if (error != 0)
		log_line("cannot grow all of the file system", NULL, error);
	initialize_tables("/", "noinit_itable");
	_exit(0);
}

/*
 * Called when the file system is the root: a child goes on, and ends when all is done or the machine is. Not where a
 * machine is only played (warm.c), which must leave nothing behind.
 */
void grow_the_rest(void)
{
	pid_t pid = growth.device < 0 || getpid() != 1 ? 1 : fork();

	if (pid == 0)
		be_the_child();
	if (pid < 0)
		log_line("cannot grow all of the file system", NULL, -errno);
	close_growth();
}
