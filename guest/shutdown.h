/* Shuts the machine down. */
#ifndef FLOTILLA_SHUTDOWN_H
#define FLOTILLA_SHUTDOWN_H

#include <stdbool.h>

void shutdown_begin(void);
bool shutdown_has_begun(void);
int shutdown_timeout_ms(void);
void shutdown_step(bool is_busy);

#endif
