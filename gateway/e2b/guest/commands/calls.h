/* The calls of the helper for commands. */
#ifndef CALLS_H
#define CALLS_H

#include "http.h"

/* Before all others. `environment`: of every command; NULL: empty. */
void calls_begin(const char *token, const struct json *environment);
void calls_answer(struct request *request);

#endif
