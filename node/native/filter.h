/* Refuses system calls to this process and all that it starts; filter.c says which. */
#ifndef FLOTILLA_FILTER_H
#define FLOTILLA_FILTER_H

/* Requires no_new_privs. Returns 0, or -1 with errno. */
int refuse_calls(void);

#endif
