/* Giving memory back to the host. */
#ifndef FLOTILLA_MEMORY_H
#define FLOTILLA_MEMORY_H

#include <stdbool.h>

void memory_spare(void);
void memory_init(void);
void memory_look(long peak_kilobytes);
int memory_timeout_ms(bool has_children);

#endif
