/* Runs a machine's start before there is a machine. */
#ifndef FLOTILLA_WARM_H
#define FLOTILLA_WARM_H

#include <sys/types.h>

#include "frame.h"

pid_t warm_up(struct fields fields);

#endif
