/* Stops all programs of the machine for the moment in which it is copied. */
#ifndef FLOTILLA_FREEZE_H
#define FLOTILLA_FREEZE_H

#include <stdbool.h>

void freeze_use_thaw_ms(int ms);
int freeze_begin(bool has_root_group);
bool freeze_end(void);
bool freeze_is_on(void);
void freeze_hold(void);
int freeze_timeout_ms(void);
void freeze_step(void);

#endif
