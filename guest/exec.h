/* Starting commands for the host. */
#ifndef FLOTILLA_EXEC_H
#define FLOTILLA_EXEC_H

#include "channel.h"
#include "frame.h"

int exec_init(void);
int exec_request(struct channel *channel, struct fields fields);

#endif
