/* The running commands and open connections, one channel each. */
#ifndef FLOTILLA_CHANNEL_H
#define FLOTILLA_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"
#include "kept.h"

enum source { SOURCE_PORT, SOURCE_SIGNALS, SOURCE_WORKLOAD, SOURCE_STDIN, SOURCE_STDOUT, SOURCE_STDERR };
#define OUTPUTS 2
#define CHANNELS_ALL (CHANNELS_MAX + CONNECTIONS_MAX)
/* The exit code of a connection that did not end in order. */
#define CONNECTION_BROKEN 1
#define KEPT_COMMAND_BYTES (4 + RESUME_KEY_BYTES)

struct output_stream {
	int fd; /* -1: the stream has ended */
	bool is_watched;
	bool has_hung_up; /* the terminal's inner side is not open now */
	uint32_t credit;
	size_t left; /* after the command's exit: bytes written before it and not sent yet */
	struct kept kept;
	uint64_t resent; /* what is kept from here on is sent again */
};

struct channel {
	bool is_open;
	uint32_t number; /* from 1 */
	bool has_exited;
	bool is_killed;
	int64_t kill_at_ms; /* when the grace after a hang-up ends; 0: none is running */
	bool is_resumable;
	uint8_t resume_key[RESUME_KEY_BYTES];
	int64_t resume_until_ms; /* its host was lost, and the next one may resume it until then; 0: it has its host */
	bool has_reported_exit;	 /* resumable: kept until the host releases it */
	bool has_terminal;
	bool is_connecting;	/* its socket is stdin_fd */
	bool has_connect_ended; /* and the host has no answer yet */
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
	uint64_t stdin_total;	 /* bytes that the host has sent */
};

/* Those after the commands' belong to connections. */
static inline bool channel_is_connection(const struct channel *channel)
{
	return channel->number > CHANNELS_MAX;
}

void channel_init(void);
void channel_use_resume_ms(int ms);
struct channel *channel_get(uint32_t number);
void channel_open(struct channel *channel);
void channel_watch_outputs(struct channel *channel);
void channel_close(struct channel *channel);
void channel_make_resumable(struct channel *channel, const uint8_t *key);

int channel_credit(struct channel *channel, uint32_t stream, uint32_t bytes);
void channel_resize(const struct channel *channel, uint32_t cols, uint32_t rows);
void channel_signal(const struct channel *channel, uint32_t number);
void channel_kill(struct channel *channel);
void channel_hang_up(struct channel *channel, uint32_t grace_ms);

int channel_resume(struct channel *channel, uint64_t stdout_offset, uint64_t stderr_offset);
void channel_release(struct channel *channel);

void channel_event(uint64_t key);
bool channel_exited(pid_t pid, int exit_code);
void channel_pump_all(void);
void channel_end_all(void);
void channel_keep_all(bool keeps_connections);
size_t channel_list_kept(uint8_t *list, bool of_connections);
int channel_timeout_ms(void);
void channel_step(void);
void channel_signal_all(uint32_t number);
void channel_hang_up_terminals(void);

#endif
