/*
 * Opens connections for the host to ports of this guest. channel.c moves their bytes.
 *
 * Always:
 * - A connection goes to the guest's own address, so a program that listens only on the loopback is not
 *   reached. The program sees the gateway as its peer, as if the connection came from outside (peer.c).
 * - The first answer to the host says that it is established, or why it is not.
 * - What connections keep for the next host is at most a share of the guest's memory: more of them are
 *   refused, and the host opens those itself.
 */
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "machine.h"
#include "output.h"
#include "peer.h"
#include "watch.h"

#define MEMORY_SHARE 8
/* A port that an ended connection still has is passed over. */
#define ATTEMPTS_MAX 64

/* How many may be open at the same time. */
uint32_t connections_max(void)
{
	struct sysinfo info;

	if (sysinfo(&info) != 0)
		return 0;
	uint64_t fit = (uint64_t)info.totalram * info.mem_unit / MEMORY_SHARE / CONNECTION_WINDOW_BYTES;
	return fit < CONNECTIONS_MAX ? (uint32_t)fit : CONNECTIONS_MAX;
}

/* The host decides by the names of the first three; other texts are for people. */
static const char *name_of(int error)
{
	switch (error) {
	case -ECONNREFUSED:
		return "ECONNREFUSED";
	case -ETIMEDOUT:
		return "ETIMEDOUT";
	case -ECONNRESET:
		return "ECONNRESET";
	default:
		return strerror(-error);
	}
}

static int read_request(struct fields fields, uint32_t *port, const uint8_t **resume_key)
{
	struct field field;
	int got, error = 0;

	*port = 0;
	*resume_key = NULL;
	while (error == 0 && (got = fields_next(&fields, &field)) != 0) {
		if (got < 0)
			return got;
		if (field.tag == FIELD_PORT)
			error = field_u32(&field, port);
		if (field.tag == FIELD_RESUME_KEY) {
			*resume_key = field.value;
			error = field.length == RESUME_KEY_BYTES ? 0 : -EBADMSG;
		}
	}
	return error != 0 || *port < 1 || *port > UINT16_MAX ? -EBADMSG : 0;
}

static int begin_once(uint16_t port, bool *has_ended)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = machine.address, .sin_port = htons(port)};
	const int yes = 1;
	int fd = peer_socket(machine.gateway);

	if (fd < 0)
		return fd;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	*has_ended = connect(fd, (struct sockaddr *)&own, sizeof(own)) == 0;
	if (*has_ended || errno == EINPROGRESS)
		return fd;
	int error = -errno;
	close(fd);
	return error;
}

/* Begins to connect. Returns the socket, or a negative errno. */
static int begin(uint16_t port, bool *has_ended)
{
	int fd = -EADDRNOTAVAIL;

	for (int attempt = 0; attempt < ATTEMPTS_MAX && fd == -EADDRNOTAVAIL; attempt++)
		fd = begin_once(port, has_ended);
	return fd;
}

static uint32_t count_open(void)
{
	uint32_t count = 0;

	for (uint32_t number = CHANNELS_MAX + 1; number <= CHANNELS_ALL; number++)
		count += channel_get(number)->is_open;
	return count;
}

/*
 * Reports how the attempt to connect has ended. Returns 0 when it is established; otherwise the caller closes
 * the channel.
 */
static int report(struct channel *channel)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (getsockopt(channel->stdin_fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
		error = errno;
	if (error == 0) {
		channel->outputs[0].fd = fcntl(channel->stdin_fd, F_DUPFD_CLOEXEC, 3);
		error = channel->outputs[0].fd < 0 ? errno : 0;
	}
	if (error != 0) {
		output_failed(channel->number, 0, name_of(-error));
		return -error;
	}
	channel->is_connecting = false;
	output_begin(GUEST_FRAME_STARTED, channel->number);
	output_u32(FIELD_PID, 0);
	output_end();
	channel_watch_outputs(channel);
	/* What came while it was not established yet. */
	if (channel->stdin_head != channel->stdin_tail || channel->stdin_has_ended)
		channel->stdin_is_watched = watch_add(channel, SOURCE_STDIN, channel->stdin_fd, EPOLLOUT);
	return 0;
}

static const struct channel_kind connection_kind = {
	.outputs = 1,
	.window_bytes = CONNECTION_WINDOW_BYTES,
	.keep = kept_open_connection,
	.report = report,
};

/* Returns 0 when the host is or will be answered; a negative errno for an invalid request. */
int connection_request(struct channel *channel, struct fields fields)
{
	const uint8_t *resume_key;
	uint32_t port;
	bool has_ended = false;
	int error = read_request(fields, &port, &resume_key);

	if (error != 0)
		return error;
	if (machine.address.s_addr == 0 || count_open() >= connections_max()) {
		output_failed(channel->number, 0, machine.address.s_addr == 0 ? "the machine has no network" : "too many connections");
		return 0;
	}
	int fd = begin((uint16_t)port, &has_ended);
	if (fd < 0) {
		output_failed(channel->number, 0, name_of(fd));
		return 0;
	}
	channel_open(channel, &connection_kind);
	if (resume_key != NULL)
		channel_make_resumable(channel, resume_key);
	channel->stdin_fd = fd;
	channel->is_connecting = true;
	channel->has_connect_ended = has_ended;
	if (has_ended)
		error = report(channel);
	else
		channel->stdin_is_watched = watch_add(channel, SOURCE_STDIN, fd, EPOLLOUT);
	if (!has_ended && !channel->stdin_is_watched) {
		error = -ENOMEM;
		output_failed(channel->number, 0, name_of(error));
	}
	if (error != 0)
		channel_close(channel);
	return 0;
}
