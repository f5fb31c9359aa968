/* The machine's main command, which it runs from its start on. */
#ifndef FLOTILLA_WORKLOAD_H
#define FLOTILLA_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"

void workload_init(int epoll);
int workload_start(struct fields fields);
void workload_attach(uint64_t offset);
void workload_detach(void);
int workload_acknowledge(uint64_t offset, uint32_t bytes);

void workload_event(void);
bool workload_exited(pid_t pid, int exit_code);
void workload_pump(void);
void workload_step(void);
int workload_timeout_ms(void);
bool workload_has_unsent_output(void);
void workload_signal(int number);

#endif
