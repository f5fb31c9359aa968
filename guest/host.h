/* The host's requests. */
#ifndef FLOTILLA_HOST_H
#define FLOTILLA_HOST_H

#include <stdbool.h>
#include <sys/types.h>

void host_init(int port);
int host_read(void);
bool host_worker_exited(pid_t pid, int exit_code);

#endif
