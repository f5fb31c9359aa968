/*
 * Handles a request to run a command: parses it, builds environment and identity, makes pipes or a terminal,
 * starts it.
 *
 * Owns the argument and environment lists of the command being started; their texts are in the request.
 *
 * Always: the host gets either `started`, if it needs the pid, or a text on stderr and exit code 255, in the
 * order of a command's own output. A background command answers `started` and `exit` at once, and outlives
 * the host's connection.
 */
#include "exec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cgroup.h"
#include "machine.h"
#include "output.h"
#include "spawn.h"

#define ARGUMENTS_MAX 16384
#define EXIT_CODE_NOT_RUN 255
#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct request {
	size_t argument_count;
	const char *cwd;
	const char *user;
	bool has_stdin;
	bool is_background;
	bool needs_pid;
	bool has_terminal;
	const uint8_t *resume_key; /* NULL: ends with its host */
	uint32_t cols;
	uint32_t rows;
};

/* One free entry before the arguments, for the shell that runs a script, and one after them for the end. */
static const char *arguments[ARGUMENTS_MAX + 2];
static const char *environment[ENVIRONMENT_MAX + 4];
static size_t environment_count;
static int null_fd;

int exec_init(void)
{
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return null_fd < 0 ? -errno : 0;
}

static const char *environment_get(const char *name)
{
	size_t length = strlen(name);

	for (size_t at = 0; at < environment_count; at++)
		if (strncmp(environment[at], name, length) == 0 && environment[at][length] == '=')
			return environment[at] + length + 1;
	return NULL;
}

/*
 * Adds `NAME=value`, or replaces the variable of this name. An entry without a name cannot be a variable and
 * is skipped.
 */
static int environment_put(const char *entry)
{
	const char *equals = strchr(entry, '=');

	if (equals == NULL || equals == entry)
		return 0;
	size_t length = (size_t)(equals - entry) + 1;
	for (size_t at = 0; at < environment_count; at++)
		if (strncmp(environment[at], entry, length) == 0) {
			environment[at] = entry;
			return 0;
		}
	if (environment_count == ENVIRONMENT_MAX)
		return -E2BIG;
	environment[environment_count++] = entry;
	return 0;
}

static int read_field(const struct field *field, struct request *request)
{
	const char *text = NULL;
	uint32_t number = 0;
	int error = 0;

	switch (field->tag) {
	case FIELD_ARGUMENT:
		error = field_text(field, &text);
		if (error == 0 && request->argument_count == ARGUMENTS_MAX)
			return -E2BIG;
		arguments[1 + request->argument_count++] = text;
		return error;
	case FIELD_ENVIRONMENT:
		error = field_text(field, &text);
		return error != 0 ? error : environment_put(text);
	case FIELD_CWD:
		return field_text(field, &request->cwd);
	case FIELD_USER:
		return field_text(field, &request->user);
	case FIELD_COLS:
		request->has_terminal = true;
		return field_u32(field, &request->cols);
	case FIELD_ROWS:
		request->has_terminal = true;
		return field_u32(field, &request->rows);
	case FIELD_HAS_STDIN:
		error = field_u32(field, &number);
		request->has_stdin = number != 0;
		return error;
	case FIELD_IS_BACKGROUND:
		error = field_u32(field, &number);
		request->is_background = number != 0;
		return error;
	case FIELD_NEEDS_PID:
		error = field_u32(field, &number);
		request->needs_pid = number != 0;
		return error;
	case FIELD_RESUME_KEY:
		request->resume_key = field->value;
		return field->length == RESUME_KEY_BYTES ? 0 : -EBADMSG;
	default:
		return 0; /* from a newer host */
	}
}

static int read_request(struct fields fields, struct request *request)
{
	struct field field;
	int got, error;

	memset(request, 0, sizeof(*request));
	request->cwd = machine.workdir;
	request->user = machine.user;
	request->needs_pid = true;
	memcpy(environment, machine.environment, machine.environment_count * sizeof(environment[0]));
	environment_count = machine.environment_count;
	while ((got = fields_next(&fields, &field)) > 0) {
		error = read_field(&field, request);
		if (error != 0)
			return error;
	}
	arguments[1 + request->argument_count] = NULL;
	if (got < 0 || request->argument_count == 0)
		return -EBADMSG;
	return 0;
}

/* Variables that every command has, unless the machine or the request sets them. */
static void add_defaults(const struct request *request, const struct identity *identity)
{
	static char home[sizeof("HOME=") + USER_HOME_BYTES_MAX];

	if (environment_get("PATH") == NULL)
		environment[environment_count++] = "PATH=" PATH_DEFAULT;
	if (environment_get("HOME") == NULL) {
		snprintf(home, sizeof(home), "HOME=%s", identity->home);
		environment[environment_count++] = home;
	}
	if (request->has_terminal && environment_get("TERM") == NULL)
		environment[environment_count++] = "TERM=xterm";
	environment[environment_count] = NULL;
}

static void close_pair(int pair[2])
{
	for (int at = 0; at < 2; at++)
		if (pair[at] >= 0)
			close(pair[at]);
}

/* Puts the command's ends of its pipes into `fds` and the agent's ends into the channel. */
int exec_open_pipes(struct channel *channel, bool has_stdin, int fds[3])
{
	int input[2] = {-1, -1}, output[2] = {-1, -1}, errors[2] = {-1, -1};

	if (has_stdin && (pipe2(input, O_CLOEXEC) != 0 || fcntl(input[1], F_SETFL, O_NONBLOCK) != 0))
		goto failed;
	if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)
		goto failed;
	channel->stdin_fd = input[1];
	channel->outputs[0].fd = output[0];
	channel->outputs[1].fd = errors[0];
	fds[0] = has_stdin ? input[0] : null_fd;
	fds[1] = output[1];
	fds[2] = errors[1];
	return 0;
failed:;
	int error = -errno;
	close_pair(input);
	close_pair(output);
	return error;
}

/* Puts the terminal's inner side into `fds` and its outer side, twice, into the channel. */
static int open_terminal(struct channel *channel, const struct request *request, const struct identity *identity, int fds[3])
{
	int unlock = 0;
	int outer = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

	if (outer < 0)
		return -errno;
	channel->has_terminal = true;
	channel->outputs[0].fd = outer;
	channel->stdin_fd = fcntl(outer, F_DUPFD_CLOEXEC, 3);
	if (channel->stdin_fd < 0 || ioctl(outer, TIOCSPTLCK, &unlock) != 0)
		return -errno;
	int inner = ioctl(outer, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (inner < 0)
		return -errno;
	fds[0] = fds[1] = fds[2] = inner;
	channel_resize(channel, request->cols, request->rows);
	if (identity->uid != 0 && fchown(inner, identity->uid, (gid_t)-1) != 0)
		return -errno;
	return 0;
}

static int open_streams(struct channel *channel, const struct request *request, const struct identity *identity, int fds[3])
{
	fds[0] = fds[1] = fds[2] = null_fd;
	if (request->is_background)
		return 0;
	if (request->has_terminal)
		return open_terminal(channel, request, identity, fds);
	return exec_open_pipes(channel, request->has_stdin, fds);
}

void exec_close_streams(const int fds[3])
{
	for (int at = 0; at < 3; at++)
		if (fds[at] != null_fd && (at == 0 || fds[at] != fds[at - 1]))
			close(fds[at]);
}

void exec_send_started(const struct channel *channel)
{
	output_begin(GUEST_FRAME_STARTED, channel->number);
	output_u32(FIELD_PID, (uint32_t)channel->pid);
	output_end();
}

static void send_exit(const struct channel *channel, int exit_code)
{
	output_begin(GUEST_FRAME_EXIT, channel->number);
	output_u32(FIELD_EXIT_CODE, (uint32_t)exit_code);
	output_end();
}

/* The command could not be run: sends the reason as its output would have been. */
static void send_not_run(const struct channel *channel, const struct request *request, const char *message)
{
	uint8_t type = request->has_terminal ? GUEST_FRAME_STDOUT : GUEST_FRAME_STDERR;

	output_begin(type, channel->number);
	output_bytes(message, strlen(message));
	output_bytes("\r\n", request->has_terminal ? 2 : 0);
	output_bytes("\n", request->has_terminal ? 0 : 1);
	output_end();
	send_exit(channel, EXIT_CODE_NOT_RUN);
}

/* Fills in everything except streams and control group. */
static int describe(const struct request *request, struct spawn *spawn, char *message, size_t message_size)
{
	*spawn = (struct spawn){
		.argv = (char **)(uintptr_t)(arguments + 1),
		.environment = (char **)(uintptr_t)environment,
		.cwd = request->cwd[0] == 0 ? "/" : request->cwd,
		.has_terminal = request->has_terminal && !request->is_background,
	};
	int error = user_resolve(request->user, &spawn->identity, message, message_size);
	if (error != 0)
		return error;
	add_defaults(request, spawn->identity);
	spawn->path = environment_get("PATH");
	return 0;
}

static int start(struct channel *channel, const struct request *request, char *message, size_t message_size)
{
	struct spawn spawn;
	int error = describe(request, &spawn, message, message_size);

	if (error != 0)
		return error;
	error = open_streams(channel, request, spawn.identity, spawn.fds);
	if (error == 0) {
		channel->cgroup = cgroup_acquire();
		spawn.cgroup_directory = cgroup_directory(channel->cgroup);
		error = spawn_start(&spawn, &channel->pid, message, message_size);
	} else {
		snprintf(message, message_size, "cannot make the command's streams: %s", strerror(-error));
	}
	exec_close_streams(spawn.fds);
	return error;
}

/*
 * Returns 0 when the host has been answered, whether the command runs or not; a negative errno for an invalid
 * request.
 */
int exec_request(struct channel *channel, struct fields fields)
{
	static char message[GUEST_MESSAGE_BYTES_MAX];
	struct request request;
	int error = read_request(fields, &request);

	if (error == -EBADMSG)
		return error;
	if (error != 0) {
		send_not_run(channel, &request, "the command has too many arguments or variables");
		return 0;
	}
	channel_open(channel, &command_kind);
	if (request.resume_key != NULL && !request.is_background)
		channel_make_resumable(channel, request.resume_key);
	if (start(channel, &request, message, sizeof(message)) != 0) {
		channel->pid = 0;
		channel_close(channel);
		send_not_run(channel, &request, message);
		return 0;
	}
	if (request.needs_pid)
		exec_send_started(channel);
	if (!request.is_background) {
		channel_watch_outputs(channel);
		return 0;
	}
	channel_close(channel);
	send_exit(channel, 0);
	return 0;
}

/*
 * Starts a command without input, whose output goes to `output`, as the machine's user. Returns 0 with its
 * pid; -EBADMSG for an invalid request; another negative errno with a message when the command cannot be run.
 */
int exec_workload(struct fields fields, int output, int cgroup, pid_t *pid, char *message, size_t message_size)
{
	struct request request;
	struct spawn spawn;
	int error = read_request(fields, &request);

	if (error == -EBADMSG)
		return error;
	if (error != 0) {
		snprintf(message, message_size, "the command has too many arguments");
		return error;
	}
	error = describe(&request, &spawn, message, message_size);
	if (error != 0)
		return error;
	/* Programs that open /dev/stdout again need the permission. */
	if (spawn.identity->uid != 0 && fchown(output, spawn.identity->uid, (gid_t)-1) != 0)
		error = -errno;
	spawn.fds[0] = null_fd;
	spawn.fds[1] = spawn.fds[2] = output;
	spawn.cgroup_directory = cgroup;
	return error != 0 ? error : spawn_start(&spawn, pid, message, message_size);
}
