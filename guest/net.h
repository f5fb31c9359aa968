/* The machine's network interfaces. */
#ifndef FLOTILLA_NET_H
#define FLOTILLA_NET_H

int net_loopback(void);
int net_address(const char *cidr, const char *gateway);

#endif
