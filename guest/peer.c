/*
 * Sockets of this guest that have the gateway's address, so that the programs which they connect to see the
 * same peer as for a connection from outside.
 *
 * The kernel permits such a source address to a transparent socket. The answers must stay in the guest: a
 * rule sends TCP packets to the gateway's ports from PEER_PORT_FIRST on to a table in which the gateway is
 * this guest. The host connects from no port of these: a translator keeps the ports below 1024 for senders
 * that have one.
 *
 * Always: rule and table are looked after for each socket, because programs of the machine may remove them.
 */
#include "peer.h"

#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "machine.h"

#define PEER_PORT_FIRST 512
#define PEER_PORT_LAST 1023
#define PEER_PORTS (PEER_PORT_LAST - PEER_PORT_FIRST + 1)
#define TABLE 61703
#define PRIORITY 1000
#define MESSAGE_BYTES 256

struct request {
	struct nlmsghdr header;
	union {
		struct rtmsg route;
		struct fib_rule_hdr rule;
	} body;
	uint8_t attributes[MESSAGE_BYTES];
};

static void begin(struct request *request, uint16_t type, size_t body_size)
{
	memset(request, 0, sizeof(*request));
	request->header.nlmsg_type = type;
	request->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
	request->header.nlmsg_len = (uint32_t)NLMSG_LENGTH(body_size);
}

static void add(struct request *request, uint16_t type, const void *value, size_t size)
{
	struct rtattr *attribute = (struct rtattr *)(void *)((uint8_t *)request + NLMSG_ALIGN(request->header.nlmsg_len));

	attribute->rta_type = type;
	attribute->rta_len = (uint16_t)RTA_LENGTH(size);
	memcpy(RTA_DATA(attribute), value, size);
	request->header.nlmsg_len = (uint32_t)(NLMSG_ALIGN(request->header.nlmsg_len) + RTA_ALIGN(attribute->rta_len));
}

/* What exists already is not an error. */
static int ask(int fd, const struct request *request)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		uint8_t rest[sizeof(struct request)];
	} answer;

	if (send(fd, request, request->header.nlmsg_len, 0) < 0)
		return -errno;
	ssize_t got = recv(fd, &answer, sizeof(answer), 0);
	if (got < 0)
		return -errno;
	if ((size_t)got < NLMSG_LENGTH(sizeof(int)) || answer.header.nlmsg_type != NLMSG_ERROR)
		return -EPROTO;
	return answer.error.error == -EEXIST ? 0 : answer.error.error;
}

static int keep_answers(struct in_addr gateway)
{
	const uint32_t table = TABLE, priority = PRIORITY;
	const uint32_t loopback = if_nametoindex("lo");
	const uint8_t protocol = IPPROTO_TCP;
	const struct fib_rule_port_range ports = {.start = PEER_PORT_FIRST, .end = PEER_PORT_LAST};
	struct request route, rule;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	begin(&route, RTM_NEWROUTE, sizeof(route.body.route));
	route.body.route = (struct rtmsg){
		.rtm_family = AF_INET,
		.rtm_dst_len = 32,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_HOST,
		.rtm_type = RTN_LOCAL,
	};
	add(&route, RTA_DST, &gateway, sizeof(gateway));
	add(&route, RTA_OIF, &loopback, sizeof(loopback));
	add(&route, RTA_TABLE, &table, sizeof(table));
	begin(&rule, RTM_NEWRULE, sizeof(rule.body.rule));
	rule.body.rule = (struct fib_rule_hdr){.family = AF_INET, .dst_len = 32, .action = FR_ACT_TO_TBL};
	add(&rule, FRA_DST, &gateway, sizeof(gateway));
	add(&rule, FRA_PRIORITY, &priority, sizeof(priority));
	add(&rule, FRA_TABLE, &table, sizeof(table));
	add(&rule, FRA_IP_PROTO, &protocol, sizeof(protocol));
	add(&rule, FRA_DPORT_RANGE, &ports, sizeof(ports));
	int error = ask(fd, &route);
	if (error == 0)
		error = ask(fd, &rule);
	close(fd);
	return error;
}

/* A free port of the gateway's address. Outside a guest any will do. */
static int bind_to(int fd, struct in_addr gateway)
{
	static uint32_t next;
	struct sockaddr_in peer = {.sin_family = AF_INET, .sin_addr = gateway};

	for (int attempt = 0; attempt < PEER_PORTS; attempt++) {
		if (machine.is_init)
			peer.sin_port = htons((uint16_t)(PEER_PORT_FIRST + next++ % PEER_PORTS));
		if (bind(fd, (struct sockaddr *)&peer, sizeof(peer)) == 0)
			return 0;
		if (errno != EADDRINUSE)
			break;
	}
	return -errno;
}

/* A socket that does not block and has the gateway's address. Returns it, or a negative errno. */
int peer_socket(struct in_addr gateway)
{
	const int yes = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = fd < 0 ? -errno : 0;

	if (error == 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0)
		error = -errno;
	if (error == 0 && machine.is_init && setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &yes, sizeof(yes)) != 0)
		error = -errno;
	if (error == 0 && machine.is_init)
		error = keep_answers(gateway);
	if (error == 0)
		error = bind_to(fd, gateway);
	if (error == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return error;
}
