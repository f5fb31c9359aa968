/*
 * Ends the TCP connections of the guest whose other end is outside of it: in a copy of a machine they are
 * those of the machine that was copied, with its addresses and sequence numbers.
 *
 * Always: connections between programs of the guest, and sockets that listen, are left alone. Programs see
 * ECONNABORTED.
 */
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_BYTES 65536
/* All states but those without another end, which CLOSE and LISTEN are. */
#define STATES (~((1U << TCP_CLOSE) | (1U << TCP_LISTEN)))
/* A connection that ends by itself meanwhile is found again. */
#define PASSES_MAX 16

struct diag_request {
	struct nlmsghdr header;
	struct inet_diag_req_v2 body;
};

static struct diag_request request_of(uint16_t type, uint16_t flags, uint8_t family)
{
	struct diag_request request;

	memset(&request, 0, sizeof(request));
	request.header.nlmsg_len = sizeof(request);
	request.header.nlmsg_type = type;
	request.header.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
	request.body.sdiag_family = family;
	request.body.sdiag_protocol = IPPROTO_TCP;
	request.body.idiag_states = STATES;
	return request;
}

static bool is_inside(const struct inet_diag_msg *socket, struct in_addr own)
{
	const uint32_t *other = socket->id.idiag_dst;
	struct in6_addr address;
	uint32_t last = other[0];

	memcpy(&address, other, sizeof(address));
	if (socket->idiag_family == AF_INET6) {
		if (IN6_IS_ADDR_LOOPBACK(&address))
			return true;
		if (!IN6_IS_ADDR_V4MAPPED(&address))
			return false;
		last = other[3];
	}
	return (ntohl(last) >> 24) == IN_LOOPBACKNET || last == own.s_addr;
}

/* Returns 0 also when the connection has ended meanwhile. */
static int reset(int fd, const struct inet_diag_msg *found)
{
	struct diag_request request = request_of(SOCK_DESTROY, NLM_F_ACK, found->idiag_family);
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		uint8_t rest[sizeof(struct diag_request)];
	} answer;

	request.body.id = found->id;
	if (send(fd, &request, sizeof(request), 0) < 0)
		return -errno;
	ssize_t got = recv(fd, &answer, sizeof(answer), 0);
	if (got < 0)
		return -errno;
	if ((size_t)got < NLMSG_LENGTH(sizeof(int)) || answer.header.nlmsg_type != NLMSG_ERROR)
		return -EPROTO;
	return answer.error.error == -ENOENT ? 0 : answer.error.error;
}

/* Ends those of one part of the list. Returns how many there were; `*is_last`: no part follows. */
static int reset_listed(int resets, uint8_t *part, size_t size, struct in_addr own, bool *is_last)
{
	int count = 0;

	for (struct nlmsghdr *header = (struct nlmsghdr *)(void *)part; NLMSG_OK(header, size); header = NLMSG_NEXT(header, size)) {
		if (header->nlmsg_type == NLMSG_DONE) {
			*is_last = true;
			break;
		}
		if (header->nlmsg_type == NLMSG_ERROR)
			return ((const struct nlmsgerr *)NLMSG_DATA(header))->error;
		const struct inet_diag_msg *found = NLMSG_DATA(header);
		/* One that waits for late packets has no program. It is not used again. */
		if (is_inside(found, own) || found->idiag_state == TCP_TIME_WAIT)
			continue;
		int error = reset(resets, found);
		if (error != 0)
			return error;
		count++;
	}
	return count;
}

/* Returns how many there were, or a negative errno. */
static int reset_all(int lists, int resets, uint8_t family, struct in_addr own)
{
	static _Alignas(8) uint8_t answer[ANSWER_BYTES];
	struct diag_request request = request_of(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, family);
	bool is_last = false;
	int count = 0;

	if (send(lists, &request, sizeof(request), 0) < 0)
		return -errno;
	while (!is_last) {
		ssize_t got = recv(lists, answer, sizeof(answer), 0);
		if (got < 0)
			return -errno;
		int part = reset_listed(resets, answer, (size_t)got, own, &is_last);
		if (part < 0)
			return part;
		count += part;
	}
	return count;
}

/* `own`: the guest's address. Returns 0 when no such connection is left. */
int sockets_reset(struct in_addr own)
{
	const uint8_t families[] = {AF_INET, AF_INET6};
	int lists = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int resets = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int found = lists < 0 || resets < 0 ? -errno : 0;

	for (size_t family = 0; found >= 0 && family < sizeof(families); family++) {
		found = 1;
		for (int pass = 0; found > 0 && pass < PASSES_MAX; pass++)
			found = reset_all(lists, resets, families[family], own);
		/* A kernel without the family has no connection of it. */
		if (found == -ENOENT && families[family] == AF_INET6)
			found = 0;
	}
	if (lists >= 0)
		close(lists);
	if (resets >= 0)
		close(resets);
	return found > 0 ? -EBUSY : found;
}
