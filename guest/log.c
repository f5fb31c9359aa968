/*
 * The agent's messages on the console (standard error); a machine's owner sees them in the boot's log.
 *
 * Always: one line is one write of at most LOG_LINE_BYTES_MAX. Events that guests or hosts can repeat at will
 * are not logged, because they would fill the host's log.
 */
#include "log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_LINE_BYTES_MAX 512

/* `name` may be NULL; `error` is 0 or a negative errno. */
void log_line(const char *what, const char *name, int error)
{
	char line[LOG_LINE_BYTES_MAX];
	int length = snprintf(line, sizeof(line), "flotilla agent: %s%s%s%s%s\n", what, name == NULL ? "" : " ",
			      name == NULL ? "" : name, error == 0 ? "" : ": ", error == 0 ? "" : strerror(-error));

	if (length > (int)sizeof(line) - 1)
		length = (int)sizeof(line) - 1;
	if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0)
		return; /* works without a console */
}

/*
 * Ends the agent. For PID 1 that is a kernel panic, which ends the machine: better than one that does not
 * respond.
 */
_Noreturn void log_fatal(const char *what, int error)
{
	log_line(what, NULL, error);
	_exit(1);
}
