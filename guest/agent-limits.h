/* Limits that several parts of the agent share. */
#ifndef FLOTILLA_AGENT_LIMITS_H
#define FLOTILLA_AGENT_LIMITS_H

#define PATH_BYTES_MAX 4096 /* Linux's PATH_MAX, including the zero byte */

#endif
