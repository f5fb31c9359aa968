/* Starts commands for the host. */
#ifndef FLOTILLA_EXEC_H
#define FLOTILLA_EXEC_H

#include "channel.h"
#include "frame.h"

int exec_init(void);
int exec_request(struct channel *channel, struct fields fields);
int exec_workload(struct fields fields, int output, int cgroup, pid_t *pid, char *message, size_t message_size);

int exec_open_pipes(struct channel *channel, bool has_stdin, int fds[3]);
void exec_close_streams(const int fds[3]);
void exec_send_started(const struct channel *channel);

#endif
