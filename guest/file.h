/* Files for the host: read, written, listed and removed by a worker process per request. */
#ifndef FLOTILLA_FILE_H
#define FLOTILLA_FILE_H

#include "channel.h"
#include "frame.h"

int file_request(struct channel *channel, struct fields fields);

#endif
