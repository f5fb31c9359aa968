/*
 * What is known of one running command or open connection: the record that channel.c, input.c and resend.c
 * work on.
 */
#ifndef FLOTILLA_CHANNEL_STATE_H
#define FLOTILLA_CHANNEL_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kept.h"
#include "protocol.h"

enum source { SOURCE_PORT, SOURCE_SIGNALS, SOURCE_WORKLOAD, SOURCE_KERNEL_LOG, SOURCE_DRAIN, SOURCE_STDIN, SOURCE_STDOUT, SOURCE_STDERR };
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

struct channel;

/* What differs between commands and connections. */
struct channel_kind {
	int outputs;
	uint32_t window_bytes;
	void (*keep)(struct kept *kept); /* begins to keep an output for the next host */
	/* Reports how the attempt to connect has ended: 0 when it is established. A command has none. */
	int (*report)(struct channel *channel);
};

struct channel {
	const struct channel_kind *kind;
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
	bool is_worker; /* a process of the agent itself, for a file */
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

/* Numbers after the commands' belong to connections, also of closed channels. */
static inline bool channel_is_connection(const struct channel *channel)
{
	return channel->number > CHANNELS_MAX;
}

#endif
