/* The standard input of running commands. */
#ifndef FLOTILLA_INPUT_H
#define FLOTILLA_INPUT_H

#include <stdint.h>

#include "channel-state.h"

int input_write(struct channel *channel, const uint8_t *bytes, uint32_t length);
void input_end(struct channel *channel);
void input_flush(struct channel *channel);
void input_give_credit(struct channel *channel);
void input_close(struct channel *channel);

#endif
