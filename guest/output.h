/* The queue of frames to the host. */
#ifndef FLOTILLA_OUTPUT_H
#define FLOTILLA_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool output_has_room(void);
size_t output_data_room(void);
uint8_t *output_data(void);
void output_data_sent(uint8_t type, uint32_t channel, size_t length);

void output_begin(uint8_t type, uint32_t channel);
void output_begin_large(uint8_t type, uint32_t channel, size_t size);
void output_field(uint8_t tag, const void *value, size_t length);
void output_bytes(const void *bytes, size_t length);
void output_u32(uint8_t tag, uint32_t number);
void output_u64(uint8_t tag, uint64_t number);
void output_text(uint8_t tag, const char *text);
void output_end(void);

void output_done(uint32_t request);
void output_failed(uint32_t channel, uint32_t request, const char *message);

bool output_is_empty(void);
void output_discard(void);
int output_flush(int fd);

#endif
