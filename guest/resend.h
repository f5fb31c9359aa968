/* Output of channels on its way to the host: new bytes, and kept ones again for the next host. */
#ifndef FLOTILLA_RESEND_H
#define FLOTILLA_RESEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel-state.h"

size_t resend_left(const struct output_stream *stream);
size_t resend_permitted(const struct output_stream *stream);
bool resend_waits(const struct channel *channel);
void resend_begin(const struct channel *channel, struct output_stream *stream, uint64_t offset);
void resend_kept(const struct channel *channel, struct output_stream *stream);
void resend_send_new(const struct channel *channel, struct output_stream *stream, size_t size);

#endif
