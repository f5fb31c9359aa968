/*
 * Configures the network interfaces: the loopback, and eth0 with the address from the host.
 *
 * Always: setting what is already set is not an error, so a configuration may be repeated.
 */
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define INTERFACE "eth0"

static int set_up(int fd, const char *name)
{
	struct ifreq request;

	memset(&request, 0, sizeof(request));
	strcpy(request.ifr_name, name);
	if (ioctl(fd, SIOCGIFFLAGS, &request) != 0)
		return -errno;
	request.ifr_flags |= IFF_UP;
	return ioctl(fd, SIOCSIFFLAGS, &request) == 0 ? 0 : -errno;
}

static int set_address(int fd, unsigned long operation, struct in_addr address)
{
	struct sockaddr_in value = {.sin_family = AF_INET, .sin_addr = address};
	struct ifreq request;

	memset(&request, 0, sizeof(request));
	strcpy(request.ifr_name, INTERFACE);
	memcpy(&request.ifr_addr, &value, sizeof(value));
	return ioctl(fd, operation, &request) == 0 ? 0 : -errno;
}

static int set_default_route(int fd, struct in_addr gateway)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct sockaddr_in value = {.sin_family = AF_INET, .sin_addr = gateway};
	struct rtentry route;

	memset(&route, 0, sizeof(route));
	memcpy(&route.rt_dst, &any, sizeof(any));
	memcpy(&route.rt_genmask, &any, sizeof(any));
	memcpy(&route.rt_gateway, &value, sizeof(value));
	route.rt_flags = RTF_UP | RTF_GATEWAY;
	return ioctl(fd, SIOCADDRT, &route) == 0 || errno == EEXIST ? 0 : -errno;
}

static bool parse_cidr(const char *cidr, struct in_addr *address, struct in_addr *mask)
{
	char text[INET_ADDRSTRLEN];
	const char *slash = strchr(cidr, '/');
	char *end;

	if (slash == NULL || (size_t)(slash - cidr) >= sizeof(text))
		return false;
	memcpy(text, cidr, (size_t)(slash - cidr));
	text[slash - cidr] = 0;
	unsigned long bits = strtoul(slash + 1, &end, 10);
	if (*end != 0 || bits < 1 || bits > 32 || inet_pton(AF_INET, text, address) != 1)
		return false;
	mask->s_addr = htonl(UINT32_MAX << (32 - bits));
	return true;
}

int net_loopback(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	int error = set_up(fd, "lo");
	close(fd);
	return error;
}

/* Both NULL: the addresses are zero. */
int net_parse(const char *cidr, const char *gateway, struct in_addr *address, struct in_addr *router)
{
	struct in_addr mask;

	*address = *router = (struct in_addr){0};
	if (cidr == NULL)
		return 0;
	return parse_cidr(cidr, address, &mask) && inet_pton(AF_INET, gateway, router) == 1 ? 0 : -EINVAL;
}

/* `cidr` is such as 10.0.0.2/30; `gateway` is in the same network. */
int net_address(const char *cidr, const char *gateway)
{
	struct in_addr address, mask, router;

	if (!parse_cidr(cidr, &address, &mask) || inet_pton(AF_INET, gateway, &router) != 1)
		return -EINVAL;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	int error = set_address(fd, SIOCSIFADDR, address);
	if (error == 0)
		error = set_address(fd, SIOCSIFNETMASK, mask);
	if (error == 0)
		error = set_up(fd, INTERFACE);
	if (error == 0)
		error = set_default_route(fd, router);
	close(fd);
	return error;
}
