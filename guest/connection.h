/* Connections to ports of this guest, for the host. */
#ifndef FLOTILLA_CONNECTION_H
#define FLOTILLA_CONNECTION_H

#include <stdint.h>

#include "channel.h"
#include "frame.h"

uint32_t connections_max(void);
int connection_request(struct channel *channel, struct fields fields);

#endif
