/* What the agent knows of its machine: nothing until the host has said so. */
#ifndef FLOTILLA_MACHINE_H
#define FLOTILLA_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "frame.h"
#include "user.h"

#define ENVIRONMENT_MAX 8192 /* variables of a command, the machine's among them */
#define ENVIRONMENT_BYTES_MAX (512 * 1024)
#define PATH_BYTES_MAX 4096
#define HOSTNAME_BYTES_MAX 64

struct machine {
	bool is_init; /* the agent is PID 1 of a guest; else it only runs commands, for tests */
	bool is_configured;
	char workdir[PATH_BYTES_MAX];
	char user[USER_BYTES_MAX];
	size_t environment_count;
	const char *environment[ENVIRONMENT_MAX]; /* `NAME=value` */
};

extern struct machine machine;

int machine_configure(struct fields fields, const char **step);

#endif
