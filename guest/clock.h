/* The monotonic clock. */
#ifndef FLOTILLA_CLOCK_H
#define FLOTILLA_CLOCK_H

#include <stdint.h>

int64_t clock_ms(void);

#endif
