/*
 * How programs learn that they run in a copy of the machine in which they were started: a file whose content
 * is another one in each copy, a new boot id, and a signal for those that want one.
 *
 * Owns /run/flotilla: `generation`; `boot-id`, which is mounted over the kernel's; and the directory
 * `branch-signals`, in which a program puts a file that is named by its process id and contains a signal's
 * name.
 *
 * Always: the file is replaced by rename, so a reader finds the old or the new one, and a watch of the
 * directory sees it. Signals are sent after that, and only to processes of the user that the file belongs to,
 * or of any user when root has written it.
 */
#include "generation.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "/run/flotilla"
#define GENERATION DIRECTORY "/generation"
#define BOOT_ID DIRECTORY "/boot-id"
#define KERNEL_BOOT_ID "/proc/sys/kernel/random/boot_id"
#define SIGNALS DIRECTORY "/branch-signals"
#define ID_BYTES 16
#define LINE_BYTES 64
#define SIGNALS_MAX 64

static int write_new(const char *path, const char *text)
{
	char unfinished[LINE_BYTES];

	snprintf(unfinished, sizeof(unfinished), "%s.new", path);
	int fd = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;
	ssize_t length = (ssize_t)strlen(text);
	ssize_t written = write(fd, text, (size_t)length);
	int error = written == length ? 0 : written < 0 ? -errno : -ENOSPC;
	close(fd);
	return error != 0 || rename(unfinished, path) == 0 ? error : -errno;
}

static int random_id(uint8_t id[ID_BYTES])
{
	return getrandom(id, ID_BYTES, 0) == ID_BYTES ? 0 : -EIO;
}

static int write_generation(void)
{
	char line[LINE_BYTES] = "";
	uint8_t id[ID_BYTES];
	int error = random_id(id);

	for (size_t at = 0; at < ID_BYTES; at++)
		snprintf(line + 2 * at, sizeof(line) - 2 * at, "%02x", id[at]);
	strcat(line, "\n");
	return error != 0 ? error : write_new(GENERATION, line);
}

/* Each copy is mounted over the one before: programs that have that open keep it. */
static int write_boot_id(void)
{
	char line[LINE_BYTES];
	uint8_t id[ID_BYTES];
	int error = random_id(id);

	if (error != 0)
		return error;
	id[6] = (uint8_t)((id[6] & 0x0f) | 0x40);
	id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
	snprintf(line, sizeof(line), "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", id[0], id[1],
		 id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11], id[12], id[13], id[14], id[15]);
	error = write_new(BOOT_ID, line);
	if (error != 0)
		return error;
	(void)umount2(KERNEL_BOOT_ID, MNT_DETACH);
	return mount(BOOT_ID, KERNEL_BOOT_ID, NULL, MS_BIND, NULL) == 0 ? 0 : -errno;
}

/*
 * Makes what is not there yet. A guest that another machine was configured in, as that of a template may be,
 * is a new one.
 */
int generation_ensure(const char *machine_id)
{
	static char former[LINE_BYTES];
	bool is_former = strncmp(former, machine_id, sizeof(former)) == 0;

	if (mkdir(DIRECTORY, 0755) != 0 && errno != EEXIST)
		return -errno;
	if (mkdir(SIGNALS, 0755) != 0 && errno != EEXIST)
		return -errno;
	/* Not by mkdir, which the umask limits: as /tmp, for programs of all users. */
	if (chmod(SIGNALS, 01777) != 0)
		return -errno;
	int error = is_former && access(GENERATION, F_OK) == 0 ? 0 : write_generation();
	if (error == 0)
		snprintf(former, sizeof(former), "%s", machine_id);
	return error;
}

/* The machine is a copy from here on. Its kernel's generator has been seeded again. */
int generation_renew(void)
{
	int error = write_boot_id();

	return error != 0 ? error : write_generation();
}

/* The number of a name such as USR1 or SIGUSR1; 0: there is none. */
static int signal_named(char *name)
{
	name[strcspn(name, " \n")] = 0;
	if (strncmp(name, "SIG", 3) == 0)
		name += 3;
	for (int number = 1; number < SIGNALS_MAX; number++) {
		const char *known = sigabbrev_np(number);

		if (known != NULL && strcmp(known, name) == 0)
			return number;
	}
	return 0;
}

static void signal_one(int directory, const char *entry)
{
	char text[LINE_BYTES], path[LINE_BYTES], *end;
	struct stat file, process;
	long pid = strtol(entry, &end, 10);

	if (pid <= 1 || *end != 0)
		return;
	snprintf(path, sizeof(path), "/proc/%ld", pid);
	int fd = openat(directory, entry, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	bool is_known = fd >= 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode);

	if (fd >= 0)
		close(fd);
	if (stat(path, &process) != 0) {
		(void)unlinkat(directory, entry, 0);
		return;
	}
	if (size <= 0 || !is_known || (file.st_uid != 0 && file.st_uid != process.st_uid))
		return;
	text[size] = 0;
	int number = signal_named(text);
	if (number != 0)
		kill((pid_t)pid, number);
}

/* Each program gets the signal that it has asked for. */
void generation_signal(void)
{
	int fd = open(SIGNALS, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	if (directory == NULL)
		return;
	for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
		signal_one(fd, entry->d_name);
	closedir(directory);
}
