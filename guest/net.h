/* The machine's network interfaces. */
#ifndef FLOTILLA_NET_H
#define FLOTILLA_NET_H

#include <netinet/in.h>

int net_loopback(void);
int net_address(const char *cidr, const char *gateway);
int net_parse(const char *cidr, const char *gateway, struct in_addr *address, struct in_addr *router);

#endif
