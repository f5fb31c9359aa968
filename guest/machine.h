/* The machine's configuration: empty until the host has sent it. */
#ifndef FLOTILLA_MACHINE_H
#define FLOTILLA_MACHINE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "agent-limits.h"
#include "frame.h"
#include "user.h"

#define ENVIRONMENT_MAX 8192 /* variables of a command, including the machine's */
#define ENVIRONMENT_BYTES_MAX (512 * 1024)
#define HOSTNAME_BYTES_MAX 64

struct machine {
	bool is_init; /* the agent is PID 1 of a guest; otherwise it only runs commands, for tests */
	bool is_configured;
	struct in_addr address; /* all zero: it has no network */
	struct in_addr gateway;
	char workdir[PATH_BYTES_MAX];
	char user[USER_BYTES_MAX];
	size_t environment_count;
	const char *environment[ENVIRONMENT_MAX]; /* `NAME=value` */
};

extern struct machine machine;

int machine_configure(struct fields fields, const char **step);

#endif
