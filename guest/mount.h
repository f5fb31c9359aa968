/* The machine's file systems. */
#ifndef FLOTILLA_MOUNT_H
#define FLOTILLA_MOUNT_H

#include <stdint.h>

int mount_early(void);
int mount_root(const char *device, uint64_t bytes);
int mount_machine(void);
void mount_sync_and_close(void);
int make_directory(const char *path);

#endif
