/* A control group per command. */
#ifndef FLOTILLA_CGROUP_H
#define FLOTILLA_CGROUP_H

#include <stdbool.h>

#define CGROUP_NONE (-1)

void cgroup_use(const char *parent);
int cgroup_parent(void);
void cgroup_prepare(void);
int cgroup_acquire(void);
int cgroup_directory(int cgroup);
void cgroup_kill(int cgroup);
bool cgroup_is_populated(int cgroup);
void cgroup_remove_all(void);
void cgroup_release(int cgroup);

#endif
