/*
 * Files for the host: a worker process per request reads, writes, lists or removes one path in the machine.
 *
 * The worker is a fork of the agent on a channel of its own, like a command: what it has to say goes over stdout, what it
 * is to write comes over stdin, both with the credit of commands, and `kill` ends it. So a slow disk stops nobody else.
 *
 * Always: what succeeds ends with exit code 0; what fails says one word and a reason on stderr (`not_found No such file or
 * directory`) and ends with 1, before anything but a whole first line has been said, or, when a file shrinks while it is
 * read, in the middle. The first line of read, stat and list is `<f|d|l|o> <mode> <size> <mtime in ms>`; write says `ready`
 * when it wants the content.
 */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bulk.h"
#include "cgroup.h"
#include "exec.h"
#include "machine.h"
#include "output.h"
#include "user.h"

#define PIPE_BYTES (1024 * 1024) /* fewer switches between agent and worker */
#define STATUS_BYTES_MAX 96

void file_say(const void *bytes, size_t length)
{
	const uint8_t *at = bytes;

	while (length > 0) {
		ssize_t written = write(STDOUT_FILENO, at, length);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			_exit(1); /* nobody listens any more */
		at += written;
		length -= (size_t)written;
	}
}

_Noreturn void file_fail(const char *word, const char *detail)
{
	dprintf(STDERR_FILENO, "%s %s", word, detail);
	_exit(1);
}

_Noreturn void file_fail_errno(int error)
{
	const char *word = "refused";

	if (error == ENOENT)
		word = "not_found";
	else if (error == ENOSPC || error == EDQUOT)
		word = "no_space";
	else if (error == EISDIR)
		word = "is_directory";
	else if (error == ENOTDIR)
		word = "not_directory";
	else if (error == ENOTEMPTY)
		word = "not_empty";
	else if (error == ENAMETOOLONG)
		word = "name_too_long";
	file_fail(word, strerror(error));
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

static int print_status(char *text, size_t size, const struct stat *status, uint64_t bytes, char end)
{
	long long modified_ms = (long long)status->st_mtim.tv_sec * 1000 + status->st_mtim.tv_nsec / 1000000;

	return snprintf(text, size, "%c %04o %llu %lld%c", kind_of(status->st_mode), status->st_mode & 07777,
			(unsigned long long)bytes, modified_ms, end);
}

void file_say_status(const struct stat *status, uint64_t size)
{
	char line[STATUS_BYTES_MAX];

	file_say(line, (size_t)print_status(line, sizeof(line), status, size, '\n'));
}

/* Says `count` bytes of the file from where it stands. */
static void say_content(int fd, uint64_t count)
{
	while (count > 0) {
		ssize_t moved = splice(fd, NULL, STDOUT_FILENO, NULL, count < PIPE_BYTES ? count : PIPE_BYTES, SPLICE_F_MOVE);

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved < 0)
			file_fail_errno(errno);
		if (moved == 0)
			file_fail("changed", "the file became shorter while it was read");
		count -= (uint64_t)moved;
	}
}

/* Files of the kernel's own say that they are empty, and cannot be spliced. */
static _Noreturn void read_unsized(int fd, const struct file_request *request, const struct stat *status)
{
	static char buffer[FILE_BUFFER_BYTES];
	size_t size = 0;

	while (size < sizeof(buffer)) {
		ssize_t got = read(fd, buffer + size, sizeof(buffer) - size);

		if (got < 0 && errno != EINTR)
			file_fail_errno(errno);
		if (got == 0)
			break;
		if (got > 0)
			size += (size_t)got;
	}
	uint64_t start = request->is_from_end ? (request->offset < size ? size - request->offset : 0) : request->offset;
	uint64_t count = start < size ? size - start : 0;
	if (count > request->length)
		count = request->length;
	file_say_status(status, size);
	if (bulk_is_open())
		bulk_say_bytes((const uint8_t *)buffer + (count > 0 ? start : 0), count);
	else
		file_say(buffer + (count > 0 ? start : 0), count);
	file_done();
}

static _Noreturn void read_file(const struct file_request *request)
{
	struct stat status;
	int fd = open(request->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, &status) != 0)
		file_fail_errno(errno);
	if (S_ISDIR(status.st_mode))
		file_fail_errno(EISDIR);
	if (!S_ISREG(status.st_mode))
		file_fail("not_regular", "it is no regular file");
	if (status.st_size == 0)
		read_unsized(fd, request, &status);
	uint64_t size = (uint64_t)status.st_size;
	uint64_t start = request->is_from_end ? (request->offset < size ? size - request->offset : 0) : request->offset;
	uint64_t count = start < size ? size - start : 0;
	if (count > request->length)
		count = request->length;
	file_say_status(&status, size);
	if (bulk_is_open()) {
		bulk_say(fd, start, count);
		file_done();
	}
	if (count > 0 && lseek(fd, (off_t)start, SEEK_SET) < 0)
		file_fail_errno(errno);
	say_content(fd, count);
	file_done();
}

static _Noreturn void stat_file(const struct file_request *request)
{
	struct stat status;

	if (stat(request->path, &status) != 0)
		file_fail_errno(errno);
	file_say_status(&status, (uint64_t)status.st_size);
	file_done();
}

/* Each entry is a line like the first, with a zero byte and the name, and another zero byte, behind it. */
static _Noreturn void list_directory(const struct file_request *request)
{
	char text[STATUS_BYTES_MAX + 512];
	struct stat status;
	DIR *directory = opendir(request->path);

	if (directory == NULL || fstat(dirfd(directory), &status) != 0)
		file_fail_errno(errno);
	file_say_status(&status, 0);
	for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
		size_t length = strlen(entry->d_name);

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
			continue; /* it has just been removed */
		size_t at = (size_t)print_status(text, STATUS_BYTES_MAX, &status, (uint64_t)status.st_size, 0);
		memcpy(text + at, entry->d_name, length + 1);
		file_say(text, at + length + 1);
	}
	file_done();
}

static _Noreturn void remove_file(const struct file_request *request)
{
	struct stat status;

	if (lstat(request->path, &status) != 0)
		file_fail_errno(errno);
	int error = S_ISDIR(status.st_mode) ? rmdir(request->path) : unlink(request->path);
	if (error != 0)
		file_fail_errno(errno == EEXIST ? ENOTEMPTY : errno);
	file_done();
}

static _Noreturn void work(const struct file_request *request, const int fds[3])
{
	sigset_t none;

	setsid();
	for (int fd = 0; fd < 3; fd++)
		if (dup2(fds[fd], fd) < 0)
			_exit(1);
	close_range(3, ~0U, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (chdir("/") != 0)
		file_fail_errno(errno);
	if (request->bulk_device != NULL)
		bulk_open(request);
	switch (request->operation) {
	case FILE_READ:
		read_file(request);
	case FILE_WRITE:
		file_write(request);
	case FILE_STAT:
		stat_file(request);
	case FILE_LIST:
		list_directory(request);
	default:
		remove_file(request);
	}
}

static pid_t fork_into(int cgroup)
{
	struct clone_args args = {.exit_signal = SIGCHLD};

	if (cgroup >= 0) {
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (uint32_t)cgroup;
	}
	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static int read_field(const struct field *field, struct file_request *request)
{
	switch (field->tag) {
	case FIELD_OPERATION:
		return field_number(field, &request->operation);
	case FIELD_PATH:
		return field_text(field, &request->path);
	case FIELD_OFFSET:
		return field_time(field, &request->offset);
	case FIELD_LENGTH:
		return field_time(field, &request->length);
	case FIELD_IS_FROM_END:
		return field_number(field, &request->is_from_end);
	case FIELD_BULK_DEVICE:
		return field_text(field, &request->bulk_device);
	case FIELD_BULK_OFFSET:
		return field_time(field, &request->bulk_offset);
	case FIELD_BULK_BYTES:
		return field_time(field, &request->bulk_bytes);
	default:
		return 0;
	}
}

static int read_request(struct fields fields, struct file_request *request)
{
	struct field field;
	int got;

	*request = (struct file_request){.length = UINT64_MAX};
	while ((got = fields_next(&fields, &field)) > 0) {
		int error = read_field(&field, request);
		if (error != 0)
			return error;
	}
	if (got < 0 || request->path == NULL || request->path[0] != '/' || request->operation < FILE_READ ||
	    request->operation > FILE_REMOVE)
		return -EBADMSG;
	return request->bulk_device == NULL || bulk_fits(request) ? 0 : -EBADMSG;
}

/* 0 when the host has been answered, whatever came of it; a negative errno when the request makes no sense. */
int file_request(struct channel *channel, struct fields fields)
{
	static char message[GUEST_MESSAGE_BYTES_MAX];
	const struct identity *identity;
	struct file_request request;
	int fds[3];
	int error = read_request(fields, &request);

	if (error != 0)
		return error;
	/* A user that the image does not know is no reason to refuse a file. */
	if (user_resolve(machine.user, &identity, message, sizeof(message)) == 0) {
		request.uid = identity->uid;
		request.gid = identity->gid;
	}
	channel_open(channel);
	error = exec_open_pipes(channel, request.operation == FILE_WRITE || request.bulk_device != NULL, fds);
	if (error == 0) {
		fcntl(fds[0], F_SETPIPE_SZ, PIPE_BYTES);
		fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES);
		channel->cgroup = cgroup_take();
		channel->pid = fork_into(cgroup_directory(channel->cgroup));
		if (channel->pid == 0)
			work(&request, fds);
		error = channel->pid < 0 ? -errno : 0;
		exec_close_streams(fds);
	}
	if (error != 0) {
		channel->pid = 0;
		channel_close(channel);
		output_failed(channel_number(channel), 0, strerror(-error));
		return 0;
	}
	exec_send_started(channel);
	channel_watch_outputs(channel);
	return 0;
}
