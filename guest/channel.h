/* The running commands and open connections, one channel each. */
#ifndef FLOTILLA_CHANNEL_H
#define FLOTILLA_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "channel-state.h"

extern const struct channel_kind command_kind;

void channel_init(void);
void channel_use_resume_ms(int ms);
struct channel *channel_get(uint32_t number);
void channel_open(struct channel *channel, const struct channel_kind *kind);
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
void channel_let_go_all(void);
void channel_keep_all(bool keeps_connections);
size_t channel_list_kept(uint8_t *list, bool of_connections);
int channel_timeout_ms(void);
void channel_step(void);
void channel_signal_all(uint32_t number);
void channel_hang_up_terminals(void);

#endif
