/*
 * The output and the end of a file worker: a process that handles one file request (file.c).
 *
 * Always: success ends the process with exit code 0. Failure ends it with 1, after an error code and a reason
 * on stderr. A worker whose channel is closed ends with 1.
 */
#include "file-worker.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SECONDS_MAX (LLONG_MAX / 1000 - 1)

static bool is_memory_full; /* a file system without space is in memory */

void file_send(const void *bytes, size_t length)
{
	const uint8_t *at = bytes;

	while (length > 0) {
		ssize_t written = write(STDOUT_FILENO, at, length);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			_exit(1); /* the agent has closed the channel */
		at += written;
		length -= (size_t)written;
	}
}

_Noreturn void file_fail(const char *code, const char *detail)
{
	dprintf(STDERR_FILENO, "%s %s", code, detail);
	_exit(1);
}

void file_is_in_memory(bool is_in_memory)
{
	is_memory_full = is_in_memory;
}

_Noreturn void file_fail_errno(int error)
{
	const char *code = "refused", *detail = strerror(error);

	if (error == ENOENT)
		code = "not_found";
	else if (error == ENOSPC || error == EDQUOT) {
		code = "no_space";
		if (is_memory_full)
			detail = "memory";
	} else if (error == EISDIR)
		code = "is_directory";
	else if (error == ENOTDIR)
		code = "not_directory";
	else if (error == ENOTEMPTY)
		code = "not_empty";
	else if (error == ENAMETOOLONG)
		code = "name_too_long";
	file_fail(code, detail);
}

_Noreturn void file_done(void)
{
	_exit(0);
}

static char kind_of(mode_t mode)
{
	if (S_ISREG(mode))
		return 'f';
	if (S_ISDIR(mode))
		return 'd';
	return S_ISLNK(mode) ? 'l' : 'o';
}

int file_print_status(char *text, size_t size, const struct stat *status, uint64_t bytes, char end)
{
	long long seconds = status->st_mtim.tv_sec;

	/* Some file systems have times that milliseconds do not hold. */
	if (seconds > SECONDS_MAX || seconds < -SECONDS_MAX)
		seconds = seconds > 0 ? SECONDS_MAX : -SECONDS_MAX;
	long long modified_ms = seconds * 1000 + status->st_mtim.tv_nsec / 1000000;

	return snprintf(text, size, "%c %04o %llu %lld%c", kind_of(status->st_mode), status->st_mode & 07777,
			(unsigned long long)bytes, modified_ms, end);
}

void file_send_status(const struct stat *status, uint64_t size)
{
	char line[FILE_STATUS_BYTES_MAX];

	file_send(line, (size_t)file_print_status(line, sizeof(line), status, size, '\n'));
}
