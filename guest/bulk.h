/*
 * Transfers the content of a file over a disk shared with the host instead of the channel: part of the file
 * worker.
 */
#ifndef FLOTILLA_BULK_H
#define FLOTILLA_BULK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file-worker.h"

bool bulk_fits(const struct file_request *request);
void bulk_open(const struct file_request *request);
bool bulk_is_open(void);
int bulk_receive(int fd);
void bulk_send(int fd, uint64_t start, uint64_t count);
void bulk_send_bytes(const uint8_t *bytes, size_t length);

#endif
