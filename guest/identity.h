/* What distinguishes a machine from others that were started from the same template. */
#ifndef FLOTILLA_IDENTITY_H
#define FLOTILLA_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#define NAMESERVERS_MAX 8

int identity_clock(uint64_t now_ms);
int identity_entropy(const uint8_t *bytes, size_t length);
int identity_files(const char *hostname, const char *machine_id, const char *const *nameservers, size_t nameserver_count);

#endif
