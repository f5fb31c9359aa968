/* Starts a process. */
#ifndef FLOTILLA_SPAWN_H
#define FLOTILLA_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "user.h"

struct spawn {
	char **argv; /* argv[-1] is free: a script without an interpreter line needs it */
	char **environment;
	const char *path; /* the PATH that the program is looked up in */
	const char *cwd;
	const struct identity *identity;
	int fds[3];	   /* become 0, 1 and 2 */
	bool has_terminal; /* fds are a terminal, which becomes the command's own */
	int cgroup_directory; /* -1: none */
};

int spawn_init(void);
int spawn_start(const struct spawn *spawn, pid_t *pid, char *message, size_t message_size);

#endif
