/* Ends TCP connections whose other end is outside of the guest. */
#ifndef FLOTILLA_SOCKETS_H
#define FLOTILLA_SOCKETS_H

#include <netinet/in.h>

int sockets_reset(struct in_addr own);

#endif
