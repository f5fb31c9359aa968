/* The user of a command. */
#ifndef FLOTILLA_USER_H
#define FLOTILLA_USER_H

#include <stddef.h>
#include <sys/types.h>

#define USER_BYTES_MAX 256
#define USER_HOME_BYTES_MAX 1024
#define USER_GROUPS_MAX 64

struct identity {
	uid_t uid;
	gid_t gid;
	size_t group_count;
	gid_t groups[USER_GROUPS_MAX]; /* supplementary */
	char home[USER_HOME_BYTES_MAX];
};

int user_resolve(const char *user, const struct identity **identity, char *message, size_t message_size);

#endif
