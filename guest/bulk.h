/* Content of files that goes over a disk shared with the host, in place of the channel. A worker's part. */
#ifndef FLOTILLA_BULK_H
#define FLOTILLA_BULK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file.h"

bool bulk_fits(const struct file_request *request);
void bulk_open(const struct file_request *request);
bool bulk_is_open(void);
int bulk_take(int fd);
void bulk_say(int fd, uint64_t start, uint64_t count);
void bulk_say_bytes(const uint8_t *bytes, size_t length);

#endif
