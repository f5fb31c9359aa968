/* Messages on the console. */
#ifndef FLOTILLA_LOG_H
#define FLOTILLA_LOG_H

void log_line(const char *what, const char *name, int error);
_Noreturn void log_fatal(const char *what, int error);

#endif
