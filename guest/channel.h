/* The running commands, one channel each. */
#ifndef FLOTILLA_CHANNEL_H
#define FLOTILLA_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"

enum source { SOURCE_PORT, SOURCE_SIGNALS, SOURCE_WORKLOAD, SOURCE_STDIN, SOURCE_STDOUT, SOURCE_STDERR };
#define OUTPUTS 2

struct output_stream {
	int fd; /* -1: the stream has ended */
	bool is_watched;
	bool has_hung_up; /* the terminal's inner side is not open now */
	uint32_t credit;
	size_t left; /* after the command's exit: bytes written before it and not sent yet */
};

struct channel {
	bool is_open;
	uint32_t number; /* from 1 */
	bool has_exited;
	bool is_killed;
	int64_t kill_at_ms; /* when the grace after a hang-up ends; 0: none is running */
	bool has_terminal;
	uint32_t generation; /* distinguishes events for this command from those for an earlier one */
	pid_t pid;	     /* 0 after it was reaped */
	int exit_code;
	int cgroup;
	struct output_stream outputs[OUTPUTS];
	int stdin_fd; /* -1: closed, or the command has no stdin */
	bool stdin_is_watched;
	bool stdin_has_ended; /* close it when the buffer is empty */
	uint32_t stdin_head;  /* the buffered input is input.c's buffer [head, tail) */
	uint32_t stdin_tail;
	uint32_t stdin_consumed; /* bytes for which credit was not returned yet */
};

void channel_init(void);
struct channel *channel_get(uint32_t number);
void channel_open(struct channel *channel);
void channel_watch_outputs(struct channel *channel);
void channel_close(struct channel *channel);

int channel_credit(struct channel *channel, uint32_t stream, uint32_t bytes);
void channel_resize(const struct channel *channel, uint32_t cols, uint32_t rows);
void channel_signal(const struct channel *channel, uint32_t number);
void channel_kill(struct channel *channel);
void channel_hang_up(struct channel *channel, uint32_t grace_ms);

void channel_event(uint64_t key);
bool channel_exited(pid_t pid, int exit_code);
void channel_pump_all(void);
void channel_end_all(void);
int channel_timeout_ms(void);
void channel_step(void);
void channel_signal_all(uint32_t number);
void channel_hang_up_terminals(void);

#endif
