/*
 * Files for the host: one worker process per request reads, writes, lists or removes one path in the machine.
 *
 * The worker is a fork of the agent on its own channel, like a command: its output goes over stdout, the
 * content of a write comes over stdin, both with the credit of commands, and `kill` ends it. So a slow disk
 * blocks nothing else.
 *
 * Always:
 * - success ends with exit code 0; failure with 1 and an error code and reason on stderr (`not_found No such
 *   file or directory`);
 * - a failure comes before any output except a complete first line, or in the middle if a file shrinks during
 *   a read;
 * - the first line of read, stat and list is `<f|d|l|o> <mode> <size> <mtime in ms>`; write sends `ready`
 *   when it is ready for the content.
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

#include "agent-limits.h"
#include "bulk.h"
#include "cgroup.h"
#include "exec.h"
#include "file-write.h"
#include "machine.h"
#include "output.h"
#include "user.h"

#define PIPE_BYTES (1024 * 1024) /* reduces switches between agent and worker */


/* Sends `count` bytes of the file from its current position. */
static void send_content(int fd, uint64_t count)
{
	while (count > 0) {
		ssize_t moved = splice(fd, NULL, STDOUT_FILENO, NULL, count < PIPE_BYTES ? count : PIPE_BYTES, SPLICE_F_MOVE);

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved < 0)
			file_fail_errno(errno);
		if (moved == 0)
			file_fail("changed", "the file shrank while it was read");
		count -= (uint64_t)moved;
	}
}

/* Files of the kernel (/proc, /sys) report size 0 and cannot be spliced. */
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
	file_send_status(status, size);
	if (bulk_is_open())
		bulk_send_bytes((const uint8_t *)buffer + (count > 0 ? start : 0), count);
	else
		file_send(buffer + (count > 0 ? start : 0), count);
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
		file_fail("not_regular", "it is not a regular file");
	if (status.st_size == 0)
		read_unsized(fd, request, &status);
	uint64_t size = (uint64_t)status.st_size;
	uint64_t start = request->is_from_end ? (request->offset < size ? size - request->offset : 0) : request->offset;
	uint64_t count = start < size ? size - start : 0;
	if (count > request->length)
		count = request->length;
	file_send_status(&status, size);
	if (bulk_is_open()) {
		bulk_send(fd, start, count);
		file_done();
	}
	if (count > 0 && lseek(fd, (off_t)start, SEEK_SET) < 0)
		file_fail_errno(errno);
	send_content(fd, count);
	file_done();
}

static _Noreturn void stat_file(const struct file_request *request)
{
	struct stat status;

	if (stat(request->path, &status) != 0)
		file_fail_errno(errno);
	file_send_status(&status, (uint64_t)status.st_size);
	file_done();
}

/*
 * Each entry has the format of the first line, with a zero byte instead of the line's end, its name, and a
 * zero byte.
 */
static _Noreturn void list_directory(const struct file_request *request)
{
	char text[FILE_STATUS_BYTES_MAX + PATH_BYTES_MAX];
	struct stat status;
	DIR *directory = opendir(request->path);

	if (directory == NULL || fstat(dirfd(directory), &status) != 0)
		file_fail_errno(errno);
	file_send_status(&status, 0);
	for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
		size_t length = strlen(entry->d_name);

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		/*
		 * A file system of a user (FUSE) may have names that are longer than NAME_MAX, but none that no path can
		 * contain.
		 */
		if (length >= PATH_BYTES_MAX)
			continue;
		if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
			continue; /* it has just been removed */
		size_t at = (size_t)file_print_status(text, FILE_STATUS_BYTES_MAX, &status, (uint64_t)status.st_size, 0);
		memcpy(text + at, entry->d_name, length + 1);
		file_send(text, at + length + 1);
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
		return field_u32(field, &request->operation);
	case FIELD_PATH:
		return field_text(field, &request->path);
	case FIELD_OFFSET:
		return field_u64(field, &request->offset);
	case FIELD_LENGTH:
		return field_u64(field, &request->length);
	case FIELD_IS_FROM_END:
		return field_u32(field, &request->is_from_end);
	case FIELD_BULK_DEVICE:
		return field_text(field, &request->bulk_device);
	case FIELD_BULK_OFFSET:
		return field_u64(field, &request->bulk_offset);
	case FIELD_BULK_BYTES:
		return field_u64(field, &request->bulk_bytes);
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

/* Returns 0 when the host has been answered, whatever the result; a negative errno for an invalid request. */
int file_request(struct channel *channel, struct fields fields)
{
	static char message[GUEST_MESSAGE_BYTES_MAX];
	const struct identity *identity;
	struct file_request request;
	int fds[3];
	int error = read_request(fields, &request);

	if (error != 0)
		return error;
	/* A file operation works even if the image does not have the user. */
	if (user_resolve(machine.user, &identity, message, sizeof(message)) == 0) {
		request.uid = identity->uid;
		request.gid = identity->gid;
	}
	channel_open(channel, &command_kind);
	channel->is_worker = true;
	error = exec_open_pipes(channel, request.operation == FILE_WRITE || request.bulk_device != NULL, fds);
	if (error == 0) {
		fcntl(fds[0], F_SETPIPE_SZ, PIPE_BYTES);
		fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES);
		channel->cgroup = cgroup_acquire();
		channel->pid = fork_into(cgroup_directory(channel->cgroup));
		if (channel->pid == 0)
			work(&request, fds);
		error = channel->pid < 0 ? -errno : 0;
		exec_close_streams(fds);
	}
	if (error != 0) {
		channel->pid = 0;
		channel_close(channel);
		output_failed(channel->number, 0, strerror(-error));
		return 0;
	}
	exec_send_started(channel);
	channel_watch_outputs(channel);
	return 0;
}
