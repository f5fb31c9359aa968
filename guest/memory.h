/* Returns memory to the host. */
#ifndef FLOTILLA_MEMORY_H
#define FLOTILLA_MEMORY_H

#include <stdbool.h>

void memory_use_small_pages(void);
void memory_init(void);
void memory_check(long peak_kilobytes);
int memory_timeout_ms(bool has_children);

#endif
