/* Users of the machine, and paths as they mean them. */
#ifndef USERS_H
#define USERS_H

#include <stdbool.h>
#include <sys/types.h>

#define GROUPS_MAX 256

struct user {
  char name[256];
  char home[1024];
  uid_t uid;
  gid_t gid;
  gid_t groups[GROUPS_MAX];
  size_t group_count;
};

/* By name or number; an empty name is the default: `user` where the image has one, else the helper's own. */
bool user_find(const char *name, struct user *user);
/* The absolute path: `~` and relative ones begin in the user's home. The caller frees it. */
char *user_path(const struct user *user, const char *path);

#endif
