/*
 * Grows the machine's file system to the size of its disk, if that is larger than the image it was made from.
 *
 * The first GROW_FIRST_BYTES are added before the machine runs, the rest in the background, step by step: a
 * file system of 16 TiB has 131,072 groups to initialize, which takes an emulated processor a minute or more.
 *
 * Always: a guest that ends in the middle leaves a valid file system of some size, and the next boot
 * continues. Only group descriptors are written: inode tables of a new disk read as zeros already. A kernel
 * with `noinit_itable` would write them at once, gigabytes of zeros; so during the growth it initializes them
 * in the background very slowly, and afterwards not at all.
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

/* Copied from the kernel's fs/ext4/ext4.h, which is not part of its exported headers. */
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)
#define SUPERBLOCK_OFFSET 1024
#define SUPERBLOCK_BYTES 1024
#define SUPERBLOCK_MAGIC 0xef53

#define GIB (UINT64_C(1) << 30)
#define GROW_FIRST_BYTES (256 * GIB)
/* The size of a flex group (node/src/images/image-builder.ts), whose bitmaps are at its start. */
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

/* Reads the size of the file system on the device. */
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
 * The kernel reads the bitmaps of each new group one block at a time and waits for each. This reads those of
 * a whole step in a few large requests before, and drops them from the cache afterwards.
 */
static void advise_bitmaps(const struct growth *of, uint64_t step, int advice)
{
	if (step % STEP_BYTES != 0)
		return;
	for (uint64_t at = 0; at < BITMAPS_BYTES; at += READ_BYTES)
		posix_fadvise(of->device, (off_t)(step + at), READ_BYTES, advice);
}

/* Grows by one step towards `to`. */
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

/*
 * Grows the file system mounted at `root` by the part needed before the start. grow_in_background() does the
 * rest.
 */
int grow_first(const char *device, const char *root)
{
	int error = open_growth(device, root);

	if (error == 0 && has_room(&growth)) {
		initialize_tables(root, "init_itable=1000");
		error = grow_to(&growth, growth.device_bytes < GROW_FIRST_BYTES ? growth.device_bytes : GROW_FIRST_BYTES);
		if (error == 0 && has_room(&growth))
			return 0;
		initialize_tables(root, "noinit_itable");
	}
	close_growth();
	return error;
}

static _Noreturn void grow_in_child(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, "disk-growth");
	setpriority(PRIO_PROCESS, 0, 19);
	int error = grow_to(&growth, growth.device_bytes);
	if (error != 0)
		log_line("cannot grow the file system to the size of its disk", NULL, error);
	initialize_tables("/", "noinit_itable");
	_exit(0);
}

/*
 * Called when the file system is the root: a child continues, and ends when the growth is complete or the
 * machine ends. Not done by a warm-up (warm.c), which must leave nothing behind.
 */
void grow_in_background(void)
{
	pid_t pid = growth.device < 0 || getpid() != 1 ? 1 : fork();

	if (pid == 0)
		grow_in_child();
	if (pid < 0)
		log_line("cannot grow the file system to the size of its disk", NULL, -errno);
	close_growth();
}
