/*
 * Gives the machine its clock, randomness, host name and machine id.
 *
 * Owns /etc/hostname, /etc/machine-id, lines of /etc/hosts, and /etc/resolv.conf if there are nameservers.
 *
 * Always: a file that is correct already is not written, so a start does not wait for the disk. A symbolic
 * link is replaced by a file: images link resolv.conf to daemons that do not run here.
 */
#include "identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENTROPY_BYTES_MAX 512
#define FILE_BYTES_MAX (64 * 1024)

static char file_text[FILE_BYTES_MAX];

int identity_clock(uint64_t now_ms)
{
	struct timespec now = {.tv_sec = (time_t)(now_ms / 1000), .tv_nsec = (long)(now_ms % 1000) * 1000000};

	return clock_settime(CLOCK_REALTIME, &now) == 0 ? 0 : -errno;
}

/* Reseeds the kernel's generator with these bytes, so that its state in the template does not matter. */
int identity_entropy(const uint8_t *bytes, size_t length)
{
	struct {
		struct rand_pool_info info;
		uint8_t bytes[ENTROPY_BYTES_MAX];
	} pool;

	if (length == 0 || length > sizeof(pool.bytes))
		return -EINVAL;
	pool.info.entropy_count = (int)length * 8;
	pool.info.buf_size = (int)length;
	memcpy((uint8_t *)&pool + sizeof(pool.info), bytes, length);
	int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int error = ioctl(fd, RNDADDENTROPY, &pool) == 0 && ioctl(fd, RNDRESEEDCRNG) == 0 ? 0 : -errno;
	close(fd);
	explicit_bzero(&pool, sizeof(pool));
	return error;
}

/*
 * Reads the start of the file into file_text; empty if there is no file. Returns its length, or a larger one
 * if unknown.
 */
static size_t read_file(const char *path)
{
	ssize_t size = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd >= 0) {
		size = read(fd, file_text, sizeof(file_text) - 1);
		close(fd);
	}
	file_text[size > 0 ? size : 0] = 0;
	return size < 0 ? FILE_BYTES_MAX : (size_t)size;
}

/* `former` is the length of the file: a file that was not longer need not be truncated. */
static int write_file(const char *path, const char *text, int extra_flags, size_t former)
{
	int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | extra_flags;
	ssize_t length = (ssize_t)strlen(text);
	int fd = open(path, flags, 0644);

	if (fd < 0 && errno == ELOOP && unlink(path) == 0)
		fd = open(path, flags, 0644);
	if (fd < 0)
		return -errno;
	ssize_t written = write(fd, text, (size_t)length);
	int error = written == length ? 0 : written < 0 ? -errno : -ENOSPC;
	if (error == 0 && (extra_flags & O_APPEND) == 0 && former > (size_t)length && ftruncate(fd, length) != 0)
		error = -errno;
	close(fd);
	return error;
}

/* Truncated after writing: ext4 flushes a file at once that was truncated to zero before. */
static int ensure_file(const char *path, const char *text)
{
	size_t former = read_file(path);

	return strcmp(file_text, text) == 0 ? 0 : write_file(path, text, 0, former);
}

/* Whether the text contains the word, delimited by blanks or line ends. */
static bool has_word(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
		if ((at == text || strchr(" \t\n", at[-1]) != NULL) && strchr(" \t\n", at[length]) != NULL)
			return true;
	return false;
}

static int ensure_hosts(const char *hostname)
{
	char line[256] = "";

	read_file("/etc/hosts");
	size_t length = strlen(file_text);
	bool needs_break = length > 0 && file_text[length - 1] != '\n';
	bool has_localhost = has_word(file_text, "localhost");
	bool has_hostname = hostname[0] == 0 || has_word(file_text, hostname);
	if (has_localhost && has_hostname)
		return 0;
	snprintf(line, sizeof(line), "%s%s%s%s%s", needs_break ? "\n" : "",
		 has_localhost ? "" : "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
		 has_hostname ? "" : "127.0.1.1 ", has_hostname ? "" : hostname, has_hostname ? "" : "\n");
	return write_file("/etc/hosts", line, O_APPEND, 0);
}

static int ensure_nameservers(const char *const *nameservers, size_t count)
{
	static bool is_ours;
	char text[NAMESERVERS_MAX * 64] = "";
	size_t length = 0;

	/* Written when the guest was configured before it was this machine. */
	if (count == 0 && is_ours)
		unlink("/etc/resolv.conf");
	is_ours = count > 0;
	for (size_t at = 0; at < count; at++)
		length += (size_t)snprintf(text + length, sizeof(text) - length, "nameserver %.48s\n", nameservers[at]);
	return count == 0 ? 0 : ensure_file("/etc/resolv.conf", text);
}

int identity_files(const char *hostname, const char *machine_id, const char *const *nameservers, size_t nameserver_count)
{
	char line[256];

	if (sethostname(hostname, strlen(hostname)) != 0)
		return -errno;
	if (mkdir("/etc", 0755) != 0 && errno != EEXIST)
		return -errno;
	snprintf(line, sizeof(line), "%s\n", hostname);
	int error = ensure_file("/etc/hostname", line);
	snprintf(line, sizeof(line), "%s\n", machine_id);
	if (error == 0)
		error = ensure_file("/etc/machine-id", line);
	if (error == 0)
		error = ensure_hosts(hostname);
	if (error == 0)
		error = ensure_nameservers(nameservers, nameserver_count);
	return error;
}
