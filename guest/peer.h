/* Sockets whose peers see the gateway. */
#ifndef FLOTILLA_PEER_H
#define FLOTILLA_PEER_H

#include <netinet/in.h>

int peer_socket(struct in_addr gateway);

#endif
